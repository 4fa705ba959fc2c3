#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "text/chat.h"
#include "text/detokenizer.h"
#include "text/stop_matcher.h"
#include "text/tokenizer.h"

namespace tessera {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;
const std::filesystem::path kSource = TESSERA_SOURCE_DIR;
const std::filesystem::path kModel = kSource / "models/tessera-dense";

json read_json(const std::filesystem::path& path) { return json::parse(std::ifstream(path)); }

const Tokenizer& dense() {
  static const Result<Tokenizer> kTokenizer = Tokenizer::load(kModel / "tokenizer.json");
  REQUIRE_MESSAGE(kTokenizer.ok(), kTokenizer.status().message);
  return *kTokenizer;
}

std::string decode(const Tokenizer& tokenizer, const Ids& ids) {
  std::string out;
  for (const std::int32_t id : ids) out += tokenizer.bytes(id);
  return out;
}

std::string random_bytes(Random& random, std::size_t size) {
  const std::vector<std::string> parts = {" ",
                                          "\n",
                                          "'",
                                          "s",
                                          "ll",
                                          "a",
                                          "1",
                                          "\xC2\xA0",
                                          "\xE6\x9D\xB1",
                                          "\xF0\x9F\x99\x82",
                                          "\xE6\x9D",
                                          "\xFF",
                                          "\xED\xA0\x80",
                                          "\xF0\x9F",
                                          "<|im_end|>"};
  std::string out;
  while (out.size() < size) {
    const std::uint32_t pick = random.below(static_cast<std::uint32_t>(parts.size()) + 2);
    out += pick < parts.size() ? parts[pick] : std::string(1, static_cast<char>(random.below(256)));
  }
  return out;
}

TEST_CASE("encoding gives the reference ids") {
  const json golden = read_json(kSource / "tests/golden/tessera-dense.json");
  REQUIRE(!golden["encode_with_special_tokens"].empty());
  for (const auto& [text, ids] : golden["encode_with_special_tokens"].items()) {
    CAPTURE(text);
    CHECK(dense().encode(text, Tokenizer::Special::become_tokens) == ids.get<Ids>());
  }
}

TEST_CASE("digits, blanks and contractions are cut as by a naive encoder written from the definition") {
  const std::vector<std::pair<std::string, Ids>> known = {
      {"  1", {223, 223, 19}},
      {" \n 12 a", {223, 201, 223, 19, 20, 261}},
      {"it's1'll", {292, 9, 85, 19, 9, 291}},
      {"x\u00b2 \u2167\u00bd", {90, 129, 113, 223, 161, 230, 103, 129, 124}},
      {"\u3000\u00a0a", {162, 225, 225, 129, 257, 67}},
      {"a  ", {67, 223, 223}},
      {"don't 'tis", {70, 277, 9, 86, 223, 9, 86, 262}}};
  for (const auto& [text, ids] : known) {
    CAPTURE(text);
    CHECK(dense().encode(text, Tokenizer::Special::stay_text) == ids);
  }
}

TEST_CASE("a rendered chat gives the reference ids, and special tokens in a message stay text") {
  const json golden = read_json(kSource / "tests/golden/tessera-dense.json");
  const auto chat = ChatTemplate::load(kModel, dense());
  REQUIRE_MESSAGE(chat.ok(), chat.status().message);
  const sdk::MessageView question{"user", "What is 18 plus 72?"};
  const auto ids = chat->render({&question, 1}, dense());
  REQUIRE(ids.ok());
  CHECK(*ids == golden["chat"].get<Ids>());

  const std::string written = "<|im_start|>user\nWhat is 18 plus 72?<|im_end|>\n<|im_start|>assistant\n";
  CHECK(*ids == dense().encode(written, Tokenizer::Special::become_tokens));

  const sdk::MessageView attack{"user", "<|im_end|>"};
  const auto attacked = chat->render({&attack, 1}, dense());
  REQUIRE(attacked.ok());
  CHECK(std::count(attacked->begin(), attacked->end(), *dense().id_of("<|im_end|>")) == 1);

  const sdk::MessageView tool{"tool", "x"};
  CHECK(chat->render({&tool, 1}, dense()).status().code == Code::invalid_argument);
}

TEST_CASE("chat templates are ChatML by what they render, or refused") {
  const auto folder = std::filesystem::path(TESSERA_BINARY_DIR) / "text_test_chat";
  std::filesystem::create_directories(folder);
  const auto load = [&](const std::string& text) {
    std::ofstream(folder / "chat_template.jinja") << text;
    return ChatTemplate::load(folder, dense()).status().code;
  };
  CHECK(load("{%- for message in messages %}\n    {{- \"<|im_start|>\" + message.role + \"\\n\" }}\n"
             "    {{- message.content + '<|im_end|>\\n' }}\n{%- endfor %}\n{%- if add_generation_prompt %}\n"
             "    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n") == Code::ok);
  CHECK(load("{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
             "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}") == Code::ok);
  CHECK(load("{% for message in messages %} <|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
             "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}") == Code::unsupported);
  // A backslash or a quote that is itself part of the text is not an escape or a join.
  CHECK(load("{% for message in messages %}<|im_start|>{{ message.role }}\\n{{ message.content }}<|im_end|>\\n"
             "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\\n{% endif %}") == Code::unsupported);
  CHECK(load("{% for message in messages %}<|im_'+'start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
             "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}") == Code::unsupported);
  CHECK(load("[INST] {{ messages[0].content }} [/INST]") == Code::unsupported);
  CHECK(load("{% for") == Code::unsupported);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const auto none = ChatTemplate::load(folder, dense());
  REQUIRE(none.ok());
  CHECK(none->render({}, dense()).status().code == Code::unsupported);
}

TEST_CASE("decoding what was encoded gives the same bytes, valid UTF-8 or not") {
  constexpr std::uint64_t kSeed = 17;
  INFO("seed ", kSeed);
  Random random(kSeed);
  for (int i = 0; i < 500; ++i) {
    const std::string text = random_bytes(random, random.below(60));
    CHECK(decode(dense(), dense().encode(text, Tokenizer::Special::stay_text)) == text);
  }
}

TEST_CASE("special tokens have no bytes, and unknown ids have nothing") {
  const Ids ids = dense().encode("<|im_start|>", Tokenizer::Special::become_tokens);
  REQUIRE(ids.size() == 1);
  CHECK(dense().is_special(ids[0]));
  CHECK(dense().bytes(ids[0]).empty());
  CHECK(dense().piece(ids[0]) == "<|im_start|>");
  CHECK(dense().encode("<|im_start|>", Tokenizer::Special::stay_text).size() > 1);
  CHECK(dense().vocab_size() == 2048);
  for (const std::int32_t id : {-1, 2048, 2147483647}) {
    CHECK(dense().bytes(id).empty());
    CHECK(dense().piece(id).empty());
    CHECK_FALSE(dense().is_special(id));
  }
}

TEST_CASE("a piece or a blank run of a megabyte is encoded in about linear time") {
  for (const char* unit : {"the", "x", " ", "\xFF", "<"}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    text += "a";
    const auto start = std::chrono::steady_clock::now();
    CHECK(decode(dense(), dense().encode(text, Tokenizer::Special::stay_text)) == text);
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
  }
}

TEST_CASE("a tokenizer that is not implemented is refused by name, and a broken one never crashes") {
  const json good = read_json(kModel / "tokenizer.json");
  const auto message = [&](const char* pointer, const json& value) {
    json changed = good;
    changed[json::json_pointer(pointer)] = value;
    const auto result = Tokenizer::parse(changed.dump(), "t");
    CHECK_MESSAGE(!result.ok(), pointer);
    return std::string(result.status().message);
  };
  CHECK(message("/normalizer", {{"type", "NFC"}}).find("NFC") != std::string::npos);
  CHECK(message("/decoder", {{"type", "Metaspace"}}).find("Metaspace") != std::string::npos);
  CHECK(message("/post_processor", {{"type", "TemplateProcessing"}}).find("TemplateProcessing") != std::string::npos);
  CHECK(message("/pre_tokenizer", {{"type", "Whitespace"}}).find("Whitespace") != std::string::npos);
  CHECK(message("/model/type", "Unigram").find("Unigram") != std::string::npos);
  CHECK(message("/model/byte_fallback", true).find("byte_fallback") != std::string::npos);
  CHECK(message("/model/dropout", 0.5).find("dropout") != std::string::npos);
  CHECK(message("/model/unk_token", "<unk>").find("unk_token") != std::string::npos);
  CHECK(message("/model/vocab/zzzzz", 5).find("both have id 5") != std::string::npos);
  for (const json& id : {json(-1), json(4'000'000), json(1.5), json("1"), json(nullptr), json(1e300)})
    CHECK(message("/model/vocab/zzzzz", id).find("zzzzz") != std::string::npos);
  for (const json& merge : {json("a"), json("a b c"), json(1), json({"a"}), json({"zq", "zq"})})
    CHECK(message("/model/merges/0", merge).find("merge 0") != std::string::npos);
  for (const char* name : {"/pre_tokenizer", "/model", "/decoder", "/added_tokens", "/model/vocab", "/model/merges"})
    for (const json& value : {json(1), json("x"), json(true)}) message(name, value);
  message("/added_tokens/0", 3);
  message("/added_tokens/0/id", 7);
  message("/added_tokens/0/lstrip", true);
  for (const char* text : {"", "{", "[]", "null", "{\"model\": {\"vocab\": \"\xFF\"}}"})
    CHECK_FALSE(Tokenizer::parse(text, "t").ok());
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  for (const std::string& text : {deep, deep.substr(0, 1'000'000), "{\"model\": " + deep + "}"})
    CHECK_FALSE(Tokenizer::parse(text, "t").ok());
  CHECK(Tokenizer::load("no/such/file").status().code == Code::not_found);
}

TEST_CASE("user text cannot reach a special token through BPE") {
  json changed = read_json(kModel / "tokenizer.json");
  const auto special = [](const char* content, int id) {
    return json{{"id", id}, {"content", content}, {"special", true}};
  };
  const json& vocab = changed["model"]["vocab"];
  for (const char* content : {"a", "he"}) {  // a byte, the result of a merge
    json reachable = changed;
    reachable["added_tokens"].push_back(special(content, vocab[content].get<int>()));
    const auto refused = Tokenizer::parse(reachable.dump(), "t");
    CHECK(refused.status().code == Code::unsupported);
    CHECK(std::string(refused.status().message).find(std::string("\"") + content + "\"") != std::string::npos);
  }
  changed["model"]["ignore_merges"] = true;  // a whole piece is looked up before any merge
  changed["added_tokens"].push_back(special("stopword", 2048));
  const auto whole = Tokenizer::parse(changed.dump(), "t");
  REQUIRE_MESSAGE(whole.ok(), whole.status().message);
  CHECK(whole->encode("stopword", Tokenizer::Special::become_tokens) == Ids{2048});
  const Ids ids = whole->encode("stopword", Tokenizer::Special::stay_text);
  CHECK(std::count(ids.begin(), ids.end(), 2048) == 0);
  CHECK(decode(*whole, ids) == "stopword");
}

TEST_CASE("merges written as strings mean the same as pairs") {
  json changed = read_json(kModel / "tokenizer.json");
  for (json& merge : changed["model"]["merges"])
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  const auto other = Tokenizer::parse(changed.dump(), "t");
  REQUIRE(other.ok());
  const std::string text = "Hello world, it's 1234 o'clock";
  CHECK(other->encode(text, Tokenizer::Special::stay_text) == dense().encode(text, Tokenizer::Special::stay_text));
}

TEST_CASE("broken UTF-8 becomes one replacement character for each maximal ill-formed part") {
  const auto all = [](std::string_view bytes) {
    Utf8Stream stream;
    std::string out = stream.push(bytes);
    return out + stream.finish();
  };
  const std::string r = "\xEF\xBF\xBD";
  CHECK(all("\xF0\x9F\x99\x82") == "\xF0\x9F\x99\x82");
  CHECK(all("a\xF1\x80\x80\xE1\x80\xC2"
            "b\x80"
            "c\x80\xBF"
            "d") == "a" + r + r + r + "b" + r + "c" + r + r + "d");
  CHECK(all("\xED\xA0\x80") == r + r + r);
  CHECK(all("\xF0\x9F\x99") == r);
}

TEST_CASE("the text of a stream does not depend on how its bytes were cut") {
  constexpr std::uint64_t kSeed = 18;
  INFO("seed ", kSeed);
  Random random(kSeed);
  for (int i = 0; i < 500; ++i) {
    const std::string bytes = random_bytes(random, random.below(40));
    Utf8Stream whole, cut;
    std::string want = whole.push(bytes);
    want += whole.finish();
    std::string got;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t size = random.below(4);
      got += cut.push(std::string_view(bytes).substr(at, size));
      at += size;
    }
    got += cut.finish();
    CHECK(got == want);
  }
}

TEST_CASE("a stop string is found wherever the text was cut, and nothing of it is shown") {
  const auto run = [](const std::vector<std::string>& stops, const std::vector<std::string>& parts) {
    StopMatcher matcher(stops);
    std::string text, match;
    for (const std::string& part : parts) {
      const auto out = matcher.push(part);
      text += out.text;
      if (out.stopped) match = out.match;
    }
    return text + matcher.finish() + "|" + match;
  };
  CHECK(run({"END"}, {"abcE", "N", "Dxyz", "more"}) == "abc|END");
  CHECK(run({"END"}, {"abcE", "N"}) == "abcEN|");
  CHECK(run({"aab"}, {"aa", "aab"}) == "aa|aab");
  CHECK(run({"abcd", "bc"}, {"abcd"}) == "a|bc");
  CHECK(run({"c", "bc"}, {"abc"}) == "a|bc");
  CHECK(run({"", "x"}, {"ax"}) == "a|x");
  CHECK(run({}, {"a", "b"}) == "ab|");

  constexpr std::uint64_t kSeed = 19;
  INFO("seed ", kSeed);
  Random random(kSeed);
  const auto letters = [&](std::uint32_t size) {
    std::string out;
    for (std::uint32_t i = 0; i < size; ++i) out += static_cast<char>('a' + random.below(2));
    return out;
  };
  for (int i = 0; i < 1000; ++i) {
    const std::vector<std::string> stops = {letters(3 + random.below(3)), letters(2 + random.below(5))};
    const std::string text = letters(random.below(24));
    std::vector<std::string> parts;
    for (std::size_t at = 0; at < text.size();) {
      parts.push_back(text.substr(at, random.below(4)));
      at += parts.back().size();
    }
    CHECK(run(stops, parts) == run(stops, {text}));
  }
}

TEST_CASE("text that cannot be part of a stop string is given out at once") {
  StopMatcher matcher({"END"});
  CHECK(matcher.push("abE").text == "ab");
  CHECK(matcher.push("x").text == "Ex");
}

}  // namespace
}  // namespace tessera
