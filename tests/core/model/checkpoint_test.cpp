#include "model/checkpoint.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "base/random.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// A folder of its own, removed at the end.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / fmt::format("tessera_ckpt_{}_{}", getpid(), count_++)) {
    fs::create_directories(path_);
  }
  ~Folder() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  fs::path write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return path_ / name;
  }
  const fs::path& path() const { return path_; }

 private:
  static inline int count_ = 0;
  fs::path path_;
};

std::string with_length(std::uint64_t length, const std::string& rest) {
  return std::string(reinterpret_cast<const char*>(&length), 8) + rest;
}

/// Pads the header to whole words, as every writer does.
std::string file_of(std::string header, const std::string& data) {
  header.append((8 - header.size() % 8) % 8, ' ');
  return with_length(header.size(), header + data);
}

std::string bytes_of(std::initializer_list<float> values) {
  return std::string(reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(float));
}

const std::string kTwo = R"({"__metadata__": {"format": "pt"},
  "b": {"dtype": "F32", "shape": [2], "data_offsets": [16, 24]},
  "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}})";

std::string refusal(const std::string& bytes) {
  const Folder folder;
  const auto checkpoint = Checkpoint::open_file(folder.write("hostile.safetensors", bytes));
  REQUIRE_FALSE(checkpoint.ok());
  std::string message = checkpoint.status().message;
  CHECK_MESSAGE(message.find("hostile.safetensors") != message.npos, message);
  return message;
}

#define CHECK_NAMES(message, word) CHECK_MESSAGE((message).find(word) != std::string::npos, message)

/// The refusal of one F32 tensor "t" with this text for shape and offsets, in a file of 64 data bytes.
std::string tensor_refusal(const std::string& shape, const std::string& offsets, const std::string& dtype = "F32") {
  std::string message = refusal(
      file_of(fmt::format(R"({{"t": {{"dtype": "{}", "shape": {}, "data_offsets": {}}}}})", dtype, shape, offsets),
              std::string(64, 'x')));
  return message;
}

TEST_CASE("the embedded model opens, and each of its tensors is taken once") {
  const fs::path folder = fs::path(TESSERA_SOURCE_DIR) / "models/tessera-dense";
  auto checkpoint = Checkpoint::open(folder);
  INFO(checkpoint.status().message);
  REQUIRE(checkpoint.ok());
  CHECK(checkpoint->tensors().size() == 56);
  CHECK(checkpoint->has("model.layers.5.mlp.down_proj.weight"));
  CHECK_FALSE(checkpoint->has("lm_head.weight"));
  std::int64_t total = 0;
  for (const TensorInfo& tensor : checkpoint->tensors()) {
    CHECK_FALSE(checkpoint->all_taken().ok());
    const auto taken = checkpoint->take(tensor.name, tensor.shape);
    REQUIRE(taken.ok());
    const std::vector<float> values = to_f32(*taken);
    CHECK(std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); }));
    total += static_cast<std::int64_t>(tensor.bytes);
  }
  CHECK(checkpoint->all_taken().ok());
  CHECK(checkpoint->total_bytes() == total);
}

TEST_CASE("the digest of one file is its SHA-256") {
  const Folder folder;
  std::string bytes =
      file_of(R"({"t": {"dtype": "F32", "shape": [750000], "data_offsets": [0, 3000000]}})", std::string(3000000, 'q'));
  const auto checkpoint = Checkpoint::open_file(folder.write("big.safetensors", bytes));
  REQUIRE(checkpoint.ok());
  Progress progress("digest", static_cast<std::int64_t>(bytes.size()));
  const auto digest = checkpoint->digest(progress);
  REQUIRE(digest.ok());
  CHECK(*digest == Sha256().add(bytes).finish());
}

TEST_CASE("tensors come sorted by name, and taking checks name, shape and use") {
  const Folder folder;
  folder.write("model.safetensors", file_of(kTwo, bytes_of({1, 2, 3, 4, 5, 6})));
  auto checkpoint = Checkpoint::open(folder.path());
  REQUIRE(checkpoint.ok());
  REQUIRE(checkpoint->tensors().size() == 2);
  CHECK(checkpoint->tensors()[0].name == "a");
  CHECK(to_f32(checkpoint->tensors()[0]) == std::vector<float>{1, 2, 3, 4});
  CHECK(to_f32(checkpoint->tensors()[1]) == std::vector<float>{5, 6});
  const std::vector<std::int64_t> square{2, 2}, flat{4};
  const std::string shape = checkpoint->take("a", flat).status().message;
  CHECK_NAMES(shape, "[2, 2]");
  CHECK_NAMES(shape, "[4]");
  CHECK_NAMES(std::string(checkpoint->take("c", flat).status().message), "no tensor c");
  CHECK(checkpoint->take("a", square).ok());
  CHECK_NAMES(std::string(checkpoint->take("a", square).status().message), "twice");
  CHECK_NAMES(std::string(checkpoint->all_taken().message), "b");
  Checkpoint moved = std::move(*checkpoint);
  CHECK(moved.take("b", std::vector<std::int64_t>{2}).ok());
  CHECK(moved.all_taken().ok());
}

TEST_CASE("half floats widen exactly") {
  const std::uint16_t f16[] = {0x3C00, 0xC000, 0x0001, 0x8000, 0x7BFF, 0x7C00, 0xFC00, 0x03FF};
  const std::uint16_t bf16[] = {0x3F80, 0xC000, 0x0001, 0x8000, 0x7F7F, 0x7F80, 0xFF80, 0x4049};
  const Folder folder;
  std::string data(reinterpret_cast<const char*>(f16), 16);
  data.append(reinterpret_cast<const char*>(bf16), 16);
  const auto checkpoint = Checkpoint::open_file(
      folder.write("half.safetensors", file_of(R"({"f": {"dtype": "F16", "shape": [8], "data_offsets": [0, 16]},
    "g": {"dtype": "BF16", "shape": [8], "data_offsets": [16, 32]},
    "nothing": {"dtype": "BF16", "shape": [0, 3], "data_offsets": [0, 0]}})",
                                               data)));
  REQUIRE(checkpoint.ok());
  const float infinity = std::numeric_limits<float>::infinity();
  const auto f = to_f32(checkpoint->tensors()[0]), g = to_f32(checkpoint->tensors()[1]);
  CHECK(f == std::vector<float>{1, -2, 0x1p-24f, -0.0f, 65504, infinity, -infinity, 1023 * 0x1p-24f});
  CHECK(std::signbit(f[3]));
  CHECK(g == std::vector<float>{1, -2, 0x1p-133f, -0.0f, 0x1.fep127f, infinity, -infinity, 3.140625f});
  CHECK(to_f32(checkpoint->tensors()[2]).empty());
}

const std::string kShardA = file_of(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})", "aaaa");
const std::string kShardB = file_of(R"({"b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})", "bbbb");
constexpr const char* kIndex = "model.safetensors.index.json";

TEST_CASE("shards of an index are one checkpoint") {
  const Folder folder;
  folder.write("1.safetensors", kShardA);
  folder.write("2.safetensors", kShardB);
  folder.write(kIndex,
               R"({"metadata": {"total_size": 8}, "weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})");
  auto checkpoint = Checkpoint::open(folder.path());
  INFO(checkpoint.status().message);
  REQUIRE(checkpoint.ok());
  CHECK(checkpoint->tensors().size() == 2);
  CHECK(checkpoint->total_bytes() == 8);
  Progress progress("digest", 0);
  const auto digest = checkpoint->digest(progress);
  REQUIRE(digest.ok());
  folder.write("2.safetensors", file_of(R"({"b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})", "bbbc"));
  auto other = Checkpoint::open(folder.path());
  REQUIRE(other.ok());
  CHECK(*other->digest(progress) != *digest);
}

TEST_CASE("an index that its shards contradict is refused") {
  const Folder folder;
  folder.write("1.safetensors", kShardA);
  folder.write("2.safetensors", kShardB);
  fs::create_directories(folder.path() / "sub");
  folder.write("sub/3.safetensors", kShardB);
  const auto message = [&](const std::string& map) {
    folder.write(kIndex, map);
    const auto checkpoint = Checkpoint::open(folder.path());
    REQUIRE_FALSE(checkpoint.ok());
    return std::string(checkpoint.status().message);
  };
  CHECK_NAMES(message(R"({"weight_map": {"a": "2.safetensors", "b": "1.safetensors"}})"), "tensor b");
  CHECK_NAMES(message(R"({"weight_map": {"a": "1.safetensors", "c": "2.safetensors"}})"), "tensor c");
  CHECK_NAMES(message(R"({"weight_map": {"a": "1.safetensors", "b": "1.safetensors"}})"), "tensor b");
  CHECK_NAMES(message(R"({"weight_map": {"a": "missing.safetensors"}})"), "missing.safetensors");
  CHECK_NAMES(message(R"({"weight_map": {"b": "sub/3.safetensors"}})"), "sub/3.safetensors");
  CHECK_NAMES(message(R"({"weight_map": {"b": "../2.safetensors"}})"), "plain file name");
  CHECK_NAMES(message(R"({"weight_map": {"b": ".."}})"), "plain file name");
  CHECK_NAMES(message(R"({"weight_map": {"b": "2.safetensors\u0000x"}})"), "plain file name");
  CHECK_NAMES(message(R"({"weight_map": {"b": ""}})"), "plain file name");
  CHECK_NAMES(message(R"({"weight_map": {"a": "1.safetensors", "a": "2.safetensors"}})"), "twice");
  CHECK_NAMES(message(R"({"weight_map": {"a": 1}})"), "no text");
  CHECK_NAMES(message(R"({"weight_map": {}})"), "weight_map");
  CHECK_NAMES(message("{}"), "weight_map");
  CHECK_NAMES(message("[1"), kIndex);
}

TEST_CASE("a folder without a checkpoint, and what is no regular file, are refused without waiting") {
  const Folder folder;
  const auto none = Checkpoint::open(folder.path());
  CHECK(none.status().code == Code::not_found);
  CHECK_FALSE(Checkpoint::open_file(folder.path() / "absent").ok());
  CHECK_FALSE(Checkpoint::open_file(folder.path()).ok());
  REQUIRE(mkfifo((folder.path() / "fifo").c_str(), 0600) == 0);
  CHECK_FALSE(Checkpoint::open_file(folder.path() / "fifo").ok());
}

TEST_CASE("truncated files and lying lengths are refused") {
  const std::string whole = file_of(kTwo, bytes_of({1, 2, 3, 4, 5, 6}));
  for (std::size_t size = 0; size < whole.size(); ++size) refusal(whole.substr(0, size));
  CHECK_NAMES(refusal(with_length(1000, "{}")), "1000");
  CHECK_NAMES(refusal(with_length(3, "{}")), "3 bytes");
  CHECK_NAMES(refusal(with_length(std::numeric_limits<std::uint64_t>::max(), "{}")), "18446744073709551615");
  CHECK_NAMES(refusal(with_length(std::uint64_t{0} - 8, "{}")), "header");
  refusal(with_length(0, "{}"));
  refusal(with_length(1, "{}"));
}

TEST_CASE("headers that are no safetensors header are refused") {
  for (const char* header : {"[]", "null", "7", "{\"a\"}", "\xff\xff", "{\"a\": 1}", "{\"a\": []}", "{\"a\": {}}",
                             R"({"a": {"dtype": 1, "shape": [], "data_offsets": [0, 4]}})",
                             R"({"a": {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]}})",
                             R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}})",
                             R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]}})",
                             R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": {"0": 0, "1": 4}}})"})
    refusal(file_of(header, "xxxx"));
  refusal(file_of(std::string(1000000, '['), ""));
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  refusal(file_of(objects, ""));
}

TEST_CASE("tensors outside the file, or of another size than their shape, are refused") {
  CHECK_NAMES(tensor_refusal("[16]", "[4, 68]"), "64 bytes");
  CHECK_NAMES(tensor_refusal("[2]", "[8, 0]"), "8..0");
  CHECK_NAMES(tensor_refusal("[2]", "[18446744073709551608, 0]"), "tensor t");
  CHECK_NAMES(tensor_refusal("[2]", "[-8, 0]"), "offsets");
  CHECK_NAMES(tensor_refusal("[2]", "[0, 8.0]"), "offsets");
  CHECK_NAMES(tensor_refusal("[2]", "[0, 1e400]"), "header");
  CHECK_NAMES(tensor_refusal("[3]", "[0, 8]"), "needs 12");
  CHECK_NAMES(tensor_refusal("[]", "[0, 8]"), "needs 4");
  CHECK_NAMES(tensor_refusal("[-2]", "[0, 8]"), "absurd shape");
  CHECK_NAMES(tensor_refusal("[2.0]", "[0, 8]"), "absurd shape");
  CHECK_NAMES(tensor_refusal("[4294967296, 4294967296]", "[0, 0]"), "absurd shape");  // 2^64 wraps to 0
  CHECK_NAMES(tensor_refusal("[4611686018427387905]", "[0, 4]"), "absurd shape");     // * 4 wraps to 4
  CHECK_NAMES(tensor_refusal("[2147483648, 2147483648, 4]", "[0, 0]"), "absurd shape");
  CHECK_NAMES(tensor_refusal("[1, 1, 1, 1, 1, 1, 1, 1, 1]", "[0, 4]"), "dimensions");
  CHECK_NAMES(tensor_refusal("[2]", "[2, 10]"), "aligned");
}

TEST_CASE("element types that no kernel reads are refused by name") {
  for (const char* dtype : {"I8", "F64", "BOOL", "F8_E4M3", "f32", ""}) {
    const std::string message = tensor_refusal("[1]", "[0, 4]", dtype);
    CHECK_NAMES(message, dtype);
    CHECK_NAMES(message, "F32, BF16 or F16");
  }
}

TEST_CASE("overlapping tensors and tensors named twice are refused") {
  const std::string data(64, 'x');
  const auto tensor = [](const char* name, int begin, int end) {
    return fmt::format(R"("{}": {{"dtype": "F32", "shape": [{}], "data_offsets": [{}, {}]}})", name, (end - begin) / 4,
                       begin, end);
  };
  const auto pair = [](const std::string& a, const std::string& b) { return "{" + a + ", " + b + "}"; };
  CHECK_NAMES(refusal(file_of(pair(tensor("a", 0, 16), tensor("b", 12, 20)), data)), "overlap");
  CHECK_NAMES(refusal(file_of(pair(tensor("a", 0, 16), tensor("b", 0, 16)), data)), "overlap");
  CHECK_NAMES(refusal(file_of(pair(tensor("b", 4, 8), tensor("a", 0, 64)), data)), "overlap");
  CHECK_NAMES(refusal(file_of(pair(tensor("a", 0, 16), tensor("a", 16, 32)), data)), "'a' twice");
  CHECK_NAMES(refusal(file_of(pair(tensor("a", 0, 16), tensor("\\u0061", 16, 32)), data)), "'a' twice");
  CHECK_NAMES(refusal(file_of(R"({"a": {"dtype": "F32", "shape": [1], "shape": [2], "data_offsets": [0, 8]}})", data)),
              "'shape' twice");
}

TEST_CASE("a message stays one readable sentence when the file's names are absurdly long") {
  const std::string name(100000, 'n');
  const std::string message =
      refusal(file_of("{\"" + name + R"(": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}})", "xxxxxxxx"));
  CHECK_NAMES(message, "wanted F32, BF16 or F16");
}

TEST_CASE("randomly damaged files are refused or give tensors inside the file") {
  const std::uint64_t seed = 77120;
  CAPTURE(seed);
  Random random(seed);
  const Folder folder;
  const std::string whole = file_of(kTwo, bytes_of({1, 2, 3, 4, 5, 6}));
  const auto header = static_cast<std::uint32_t>(whole.size() - 24);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = whole;
    for (std::uint32_t edits = 1 + random.below(3); edits > 0; --edits)
      bytes[random.below(header)] =
          random.below(2) ? static_cast<char>('0' + random.below(10)) : static_cast<char>(random.below(256));
    const auto checkpoint = Checkpoint::open_file(folder.write("f.safetensors", bytes));
    if (!checkpoint.ok()) {
      CHECK(checkpoint.status().message[0] != '\0');
      continue;
    }
    std::size_t total = 0;
    for (const TensorInfo& tensor : checkpoint->tensors()) {
      CHECK(to_f32(tensor).size() * sdk::dtype_bytes(tensor.dtype) == tensor.bytes);
      total += tensor.bytes;
    }
    CHECK(total <= whole.size() - 8);
  }
}

}  // namespace
}  // namespace tessera
