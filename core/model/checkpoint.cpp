#include "model/checkpoint.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "tessera/sdk/numerics.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kMaxHeader = 100'000'000;
constexpr std::int64_t kDigestBlock = 1 << 20;

/// Names of a hostile file can be as long as its header; an error message keeps its end.
std::string shown(const std::string& name) {
  std::size_t size = std::min<std::size_t>(name.size(), 120);
  while (size < name.size() && size > 0 && (static_cast<unsigned char>(name[size]) & 0xC0) == 0x80) --size;
  std::string text = size == name.size() ? name : name.substr(0, size) + "...";
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 32) c = '?';  // a NUL would end the message
  return text;
}

/// A read-only mapping of a whole file.
class Mapping {
 public:
  static Result<std::unique_ptr<Mapping>> open(const fs::path& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO must not hang us
    if (file < 0)
      return fail(Code::not_found, "{}: cannot be opened ({}); wanted a safetensors file", path.string(),
                  std::strerror(errno));
    struct stat facts {};
    const bool sized = fstat(file, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_size > 8;
    void* data =
        sized ? mmap(nullptr, static_cast<std::size_t>(facts.st_size), PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
    ::close(file);
    if (data == MAP_FAILED)
      return fail(Code::invalid_argument, "{}: is no file of more than 8 bytes; wanted a safetensors file",
                  path.string());
    return std::unique_ptr<Mapping>(new Mapping(path, data, static_cast<std::size_t>(facts.st_size)));
  }
  ~Mapping() { munmap(data_, size_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  const fs::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  Mapping(fs::path path, void* data, std::size_t size) : path_(std::move(path)), data_(data), size_(size) {}
  fs::path path_;
  void* data_;
  std::size_t size_;
};

/// Stops at the first duplicate name, which nlohmann would overwrite silently, and at nesting no safetensors header
/// has: a hostile header must not become a tree many times its size.
class HeaderGuard final : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override {
    keys_.emplace_back();
    return ++depth_ <= kMaxDepth;
  }
  bool end_object() override {
    keys_.pop_back();
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override { return ++depth_ <= kMaxDepth; }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool key(string_t& name) override {
    if (keys_.back().insert(name).second) return true;
    duplicate_ = name;
    return false;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override { return false; }

  const std::optional<std::string>& duplicate() const { return duplicate_; }

 private:
  static constexpr int kMaxDepth = 8;
  std::vector<std::set<std::string>> keys_;
  std::optional<std::string> duplicate_;
  int depth_ = 0;
};

/// A JSON object of which no object names anything twice.
Result<nlohmann::json> parse_object(const fs::path& path, std::string_view text, std::string_view what) {
  HeaderGuard guard;
  const bool sound = nlohmann::json::sax_parse(text, &guard);
  if (guard.duplicate())
    return fail(Code::invalid_argument, "{}: {} names '{}' twice; wanted every name once", path.string(), what,
                shown(*guard.duplicate()));
  nlohmann::json json = sound ? nlohmann::json::parse(text, nullptr, false) : nlohmann::json();
  if (!json.is_object())
    return fail(Code::invalid_argument, "{}: {} is no JSON object of tensors; the file is damaged or of another kind",
                path.string(), what);
  return json;
}

Result<sdk::DType> parse_dtype(const fs::path& path, const std::string& name, const std::string& text) {
  if (text == "F32") return sdk::DType::f32;
  if (text == "BF16") return sdk::DType::bf16;
  if (text == "F16") return sdk::DType::f16;
  return fail(Code::unsupported, "{}: tensor {} has type {}; wanted F32, BF16 or F16", path.string(), shown(name),
              shown(text));
}

Result<TensorInfo> parse_tensor(const fs::path& path, const std::string& name, const nlohmann::json& json,
                                std::span<const std::byte> data) {
  const auto bad = [&](std::string_view what) {
    return fail(Code::invalid_argument, "{}: tensor {} {}; the file is damaged or no safetensors file", path.string(),
                shown(name), what);
  };
  if (!json.is_object() || !json.contains("dtype") || !json["dtype"].is_string() || !json.contains("shape") ||
      !json["shape"].is_array() || !json.contains("data_offsets") || !json["data_offsets"].is_array() ||
      json["data_offsets"].size() != 2)
    return bad("lacks dtype, shape or data_offsets");
  auto dtype = parse_dtype(path, name, json["dtype"].get<std::string>());
  if (!dtype.ok()) return dtype.status();
  TensorInfo info{name, *dtype, {}, nullptr, 0};
  std::uint64_t bytes = sdk::dtype_bytes(*dtype);
  if (json["shape"].size() > 8) return bad("has more than 8 dimensions");
  for (const nlohmann::json& dim : json["shape"]) {
    if (!dim.is_number_unsigned() || dim.get<std::uint64_t>() > (std::uint64_t{1} << 40))
      return bad("has an absurd shape");
    const auto extent = dim.get<std::uint64_t>();
    if (extent != 0 && bytes > (std::uint64_t{1} << 50) / extent) return bad("has an absurd shape");
    bytes *= extent;
    info.shape.push_back(static_cast<std::int64_t>(extent));
  }
  const nlohmann::json& offsets = json["data_offsets"];
  if (!offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned())
    return bad("has offsets that are no numbers");
  const auto begin = offsets[0].get<std::uint64_t>(), end = offsets[1].get<std::uint64_t>();
  if (begin > end || end > data.size())
    return bad(fmt::format("lies at {}..{} but the file has {} bytes of data", begin, end, data.size()));
  if (end - begin != bytes) return bad(fmt::format("has {} bytes but its shape needs {}", end - begin, bytes));
  info.data = data.data() + begin;
  info.bytes = bytes;
  if (reinterpret_cast<std::uintptr_t>(info.data) % sdk::dtype_bytes(*dtype) != 0)
    return bad("starts at byte " + std::to_string(begin) + " of the data, which is not aligned to its element type");
  return info;
}

Status check_overlaps(const fs::path& path, std::vector<TensorInfo> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return a.data != b.data ? a.data < b.data : a.bytes < b.bytes;  // an empty tensor may share its neighbour's start
  });
  for (std::size_t i = 1; i < tensors.size(); ++i)
    if (tensors[i - 1].data + tensors[i - 1].bytes > tensors[i].data)
      return fail(Code::invalid_argument, "{}: tensors {} and {} overlap; the file is damaged", path.string(),
                  shown(tensors[i - 1].name), shown(tensors[i].name));
  return {};
}

Result<std::vector<TensorInfo>> parse_file(const Mapping& mapping) {
  const auto bytes = mapping.bytes();
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  if (header > kMaxHeader || header > bytes.size() - 8)
    return fail(Code::invalid_argument,
                "{}: says its header has {} bytes but the file has {}; it is damaged or no "
                "safetensors file",
                mapping.path().string(), header, bytes.size());
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, header);
  auto json = parse_object(mapping.path(), text, "its header");
  if (!json.ok()) return json.status();
  std::vector<TensorInfo> tensors;
  for (const auto& [name, value] : json->items()) {
    if (name == "__metadata__") continue;
    auto tensor = parse_tensor(mapping.path(), name, value, bytes.subspan(8 + header));
    if (!tensor.ok()) return tensor.status();
    tensors.push_back(std::move(*tensor));
  }
  TESSERA_TRY(check_overlaps(mapping.path(), tensors));
  return tensors;
}

/// Shard file name -> names of the tensors the index says it holds.
Result<std::map<std::string, std::set<std::string>>> read_index(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  const auto parsed = parse_object(path, text.str(), "the index");
  if (!parsed.ok()) return parsed.status();
  const nlohmann::json& json = *parsed;
  const auto bad = [&](const std::string& what) {
    return fail(Code::invalid_argument, "{}: {}; wanted {{\"weight_map\": {{tensor: file}}}}", path.string(), what);
  };
  if (!json.contains("weight_map") || !json["weight_map"].is_object() || json["weight_map"].empty())
    return bad("has no weight_map, or an empty one");
  std::map<std::string, std::set<std::string>> shards;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    if (!file.is_string()) return bad("weight_map of " + shown(tensor) + " is no text");
    const std::string name = file.get<std::string>();
    const bool plain =
        !name.empty() && name != "." && name != ".." && name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
    if (!plain) return bad("shard '" + shown(name) + "' is no plain file name");
    shards[name].insert(tensor);
  }
  return shards;
}

std::string shape_text(std::span<const std::int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace

struct Checkpoint::Impl {
  std::vector<std::unique_ptr<Mapping>> files;
  std::vector<TensorInfo> tensors;  // by name
  std::set<std::string, std::less<>> taken;

  const TensorInfo* find(std::string_view name) const {
    const auto at = std::lower_bound(tensors.begin(), tensors.end(), name,
                                     [](const TensorInfo& t, std::string_view n) { return t.name < n; });
    return at != tensors.end() && at->name == name ? &*at : nullptr;
  }

  /// With `expected`, the file must hold exactly these tensors.
  Status add(const fs::path& path, const std::set<std::string>* expected) {
    auto mapping = Mapping::open(path);
    if (!mapping.ok()) return mapping.status();
    auto found = parse_file(**mapping);
    if (!found.ok()) return found.status();
    if (expected != nullptr) {
      std::set<std::string> names;
      for (const TensorInfo& tensor : *found) names.insert(tensor.name);
      for (const std::string& name : *expected)
        if (!names.contains(name))
          return fail(Code::invalid_argument,
                      "{}: has no tensor {}, which the index says it holds; wanted shards and an "
                      "index that belong together",
                      path.string(), shown(name));
      for (const std::string& name : names)
        if (!expected->contains(name))
          return fail(Code::invalid_argument,
                      "{}: holds tensor {}, which the index does not place there; wanted shards "
                      "and an index that belong together",
                      path.string(), shown(name));
    }
    tensors.insert(tensors.end(), found->begin(), found->end());
    files.push_back(std::move(*mapping));
    std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
    return {};
  }
};

Checkpoint::Checkpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Result<Checkpoint> Checkpoint::open_file(const fs::path& file) {
  auto impl = std::make_unique<Impl>();
  TESSERA_TRY(impl->add(file, nullptr));
  return Checkpoint(std::move(impl));
}

Result<Checkpoint> Checkpoint::open(const fs::path& model_dir) {
  std::error_code error;
  const fs::path single = model_dir / "model.safetensors", index = model_dir / "model.safetensors.index.json";
  if (fs::exists(single, error)) return open_file(single);
  if (!fs::exists(index, error))
    return fail(Code::not_found,
                "{}: has neither model.safetensors nor model.safetensors.index.json; wanted a "
                "checkpoint folder",
                model_dir.string());
  auto shards = read_index(index);
  if (!shards.ok()) return shards.status();
  auto impl = std::make_unique<Impl>();
  for (const auto& [file, names] : *shards) TESSERA_TRY(impl->add(model_dir / file, &names));
  return Checkpoint(std::move(impl));
}

std::span<const TensorInfo> Checkpoint::tensors() const { return impl_->tensors; }
bool Checkpoint::has(std::string_view name) const { return impl_->find(name) != nullptr; }

Result<TensorInfo> Checkpoint::take(std::string_view name, std::span<const std::int64_t> shape) {
  const std::string where = impl_->files.front()->path().parent_path().string();
  const TensorInfo* tensor = impl_->find(name);
  if (tensor == nullptr)
    return fail(Code::invalid_argument, "{}: the checkpoint has no tensor {}; wanted shape {}", where, name,
                shape_text(shape));
  if (!std::equal(shape.begin(), shape.end(), tensor->shape.begin(), tensor->shape.end()))
    return fail(Code::invalid_argument, "{}: tensor {} has shape {}; config.json wants {}", where, name,
                shape_text(tensor->shape), shape_text(shape));
  if (!impl_->taken.insert(tensor->name).second)
    return fail(Code::internal, "{}: tensor {} was asked for twice", where, name);
  return *tensor;
}

Status Checkpoint::all_taken() const {
  std::string left;
  std::size_t count = 0;
  for (const TensorInfo& tensor : impl_->tensors) {
    if (impl_->taken.contains(tensor.name)) continue;
    if (++count <= 3) left += (left.empty() ? "" : ", ") + shown(tensor.name);
  }
  if (count == 0) return {};
  return fail(Code::invalid_argument,
              "{}: {} tensors are of no use to this model ({}{}); its config.json describes "
              "another one",
              impl_->files.front()->path().parent_path().string(), count, left, count > 3 ? ", ..." : "");
}

std::int64_t Checkpoint::total_bytes() const {
  std::int64_t total = 0;
  for (const TensorInfo& tensor : impl_->tensors) total += static_cast<std::int64_t>(tensor.bytes);
  return total;
}

std::map<std::string, Digest> Checkpoint::digests(Progress& progress) const {
  std::map<std::string, Digest> digests;
  for (const auto& file : impl_->files) {
    Sha256 hash;
    for (auto rest = file->bytes(); !rest.empty();) {
      const auto block = rest.first(std::min<std::size_t>(rest.size(), kDigestBlock));
      hash.add(block);
      progress.advance(static_cast<std::int64_t>(block.size()));
      rest = rest.subspan(block.size());
    }
    digests[file->path().filename().string()] = hash.finish();
  }
  return digests;
}

Digest Checkpoint::folded(const std::map<std::string, Digest>& digests) {
  if (digests.size() == 1) return digests.begin()->second;
  Sha256 all;
  for (const auto& [name, digest] : digests) all.add(name).add(std::as_bytes(std::span(digest)));
  return all.finish();
}

std::vector<float> to_f32(const TensorInfo& tensor) {
  const std::size_t count = tensor.bytes / sdk::dtype_bytes(tensor.dtype);
  std::vector<float> values(count);
  if (count == 0) return values;
  if (tensor.dtype == sdk::DType::f32) std::memcpy(values.data(), tensor.data, tensor.bytes);
  if (tensor.dtype == sdk::DType::f32) return values;
  const auto* narrow = reinterpret_cast<const std::uint16_t*>(tensor.data);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = tensor.dtype == sdk::DType::bf16 ? sdk::widen_bf16(narrow[i]) : sdk::widen_f16(narrow[i]);
  return values;
}

}  // namespace tessera
