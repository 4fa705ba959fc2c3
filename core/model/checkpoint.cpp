#include "model/checkpoint.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

namespace tessera {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kMaxHeader = 100'000'000;
constexpr std::int64_t kDigestBlock = 1 << 20;

/// A read-only mapping of a whole file.
class Mapping {
 public:
  static Result<std::unique_ptr<Mapping>> open(const fs::path& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return fail(Code::not_found, "{}: cannot be opened ({}); wanted a safetensors file", path.string(), std::strerror(errno));
    struct stat facts{};
    const bool sized = fstat(file, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_size > 8;
    void* data = sized ? mmap(nullptr, static_cast<std::size_t>(facts.st_size), PROT_READ, MAP_PRIVATE, file, 0)
                       : MAP_FAILED;
    ::close(file);
    if (data == MAP_FAILED)
      return fail(Code::invalid_argument, "{}: is no file of more than 8 bytes; wanted a safetensors file", path.string());
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

/// The header as JSON; duplicate names are refused here because nlohmann would keep the last one silently.
Result<nlohmann::json> parse_header(const fs::path& path, std::string_view text) {
  std::vector<std::set<std::string>> keys;
  std::string duplicate;
  bool too_deep = false;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    too_deep = too_deep || depth > 8;
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end && !keys.empty()) keys.pop_back();
    if (event == Event::key && !keys.empty() && !keys.back().insert(value.get<std::string>()).second)
      duplicate = value.get<std::string>();
    return true;
  };
  nlohmann::json json = nlohmann::json::parse(text, watch, false);
  if (!duplicate.empty())
    return fail(Code::invalid_argument, "{}: names '{}' twice; wanted every tensor once", path.string(), duplicate);
  if (too_deep || !json.is_object())
    return fail(Code::invalid_argument, "{}: its header is no JSON object; the file is damaged or no safetensors file", path.string());
  return json;
}

Result<sdk::DType> parse_dtype(const fs::path& path, const std::string& name, const std::string& text) {
  if (text == "F32") return sdk::DType::f32;
  if (text == "BF16") return sdk::DType::bf16;
  if (text == "F16") return sdk::DType::f16;
  return fail(Code::unsupported, "{}: tensor {} has type {}; wanted F32, BF16 or F16", path.string(), name, text);
}

Result<TensorInfo> parse_tensor(const fs::path& path, const std::string& name, const nlohmann::json& json,
                                std::span<const std::byte> data) {
  const auto bad = [&](std::string_view what) {
    return fail(Code::invalid_argument, "{}: tensor {} {}; the file is damaged or no safetensors file", path.string(), name, what);
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
    if (!dim.is_number_unsigned() || dim.get<std::uint64_t>() > (std::uint64_t{1} << 40)) return bad("has an absurd shape");
    const auto extent = dim.get<std::uint64_t>();
    if (extent != 0 && bytes > (std::uint64_t{1} << 50) / extent) return bad("has an absurd shape");
    bytes *= extent;
    info.shape.push_back(static_cast<std::int64_t>(extent));
  }
  const nlohmann::json& offsets = json["data_offsets"];
  if (!offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned()) return bad("has offsets that are no numbers");
  const auto begin = offsets[0].get<std::uint64_t>(), end = offsets[1].get<std::uint64_t>();
  if (begin > end || end > data.size())
    return bad(fmt::format("lies at {}..{} but the file has {} bytes of data", begin, end, data.size()));
  if (end - begin != bytes) return bad(fmt::format("has {} bytes but its shape needs {}", end - begin, bytes));
  info.data = data.data() + begin;
  info.bytes = bytes;
  if (reinterpret_cast<std::uintptr_t>(info.data) % sdk::dtype_bytes(*dtype) != 0) return bad("is not aligned to its element type");
  return info;
}

Status check_overlaps(const fs::path& path, std::vector<TensorInfo> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) { return a.data < b.data; });
  for (std::size_t i = 1; i < tensors.size(); ++i)
    if (tensors[i - 1].data + tensors[i - 1].bytes > tensors[i].data)
      return fail(Code::invalid_argument, "{}: tensors {} and {} overlap; the file is damaged", path.string(),
                  tensors[i - 1].name, tensors[i].name);
  return {};
}

Result<std::vector<TensorInfo>> parse_file(const Mapping& mapping) {
  const auto bytes = mapping.bytes();
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  if (header > kMaxHeader || header > bytes.size() - 8)
    return fail(Code::invalid_argument, "{}: says its header has {} bytes but the file has {}; it is damaged or no "
                "safetensors file", mapping.path().string(), header, bytes.size());
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, header);
  auto json = parse_header(mapping.path(), text);
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
  const nlohmann::json json = nlohmann::json::parse(in, nullptr, false);
  const auto bad = [&](const std::string& what) {
    return fail(Code::invalid_argument, "{}: {}; wanted {{\"weight_map\": {{tensor: file}}}}", path.string(), what);
  };
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) return bad("has no weight_map");
  std::map<std::string, std::set<std::string>> shards;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    if (!file.is_string()) return bad("weight_map of " + tensor + " is no text");
    const std::string name = file.get<std::string>();
    if (name.empty() || fs::path(name).filename() != name || name == "." || name == "..")
      return bad("shard '" + name + "' is no plain file name");
    shards[name].insert(tensor);
  }
  return shards;
}

std::string shape_text(std::span<const std::int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

float widen_f16(std::uint16_t bits) {
  const float sign = (bits & 0x8000u) != 0 ? -1.0f : 1.0f;
  const std::uint32_t exponent = (bits >> 10) & 31u, mantissa = bits & 1023u;
  if (exponent == 0) return sign * static_cast<float>(mantissa) * 0x1p-24f;
  const std::uint32_t wide = exponent == 31 ? 255u : exponent + 112u;
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits & 0x8000u) << 16 | wide << 23 | mantissa << 13);
}

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
      if (names != *expected)
        return fail(Code::invalid_argument, "{}: holds {} tensors but the index says {} or others; the shards and the "
                    "index do not belong together", path.string(), names.size(), expected->size());
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
    return fail(Code::not_found, "{}: has neither model.safetensors nor model.safetensors.index.json; wanted a "
                "checkpoint folder", model_dir.string());
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
    return fail(Code::invalid_argument, "{}: the checkpoint has no tensor {}; wanted shape {}", where, name, shape_text(shape));
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
    if (++count <= 3) left += (left.empty() ? "" : ", ") + tensor.name;
  }
  if (count == 0) return {};
  return fail(Code::invalid_argument, "{}: {} tensors are of no use to this model ({}{}); its config.json describes "
              "another one", impl_->files.front()->path().parent_path().string(), count, left, count > 3 ? ", ..." : "");
}

std::int64_t Checkpoint::total_bytes() const {
  std::int64_t total = 0;
  for (const TensorInfo& tensor : impl_->tensors) total += static_cast<std::int64_t>(tensor.bytes);
  return total;
}

Result<Digest> Checkpoint::digest(Progress& progress) const {
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
  if (digests.size() == 1) return digests.begin()->second;
  Sha256 all;
  for (const auto& [name, digest] : digests) all.add(name).add(std::as_bytes(std::span(digest)));
  return all.finish();
}

std::vector<float> to_f32(const TensorInfo& tensor) {
  const std::size_t count = tensor.bytes / sdk::dtype_bytes(tensor.dtype);
  std::vector<float> values(count);
  if (tensor.dtype == sdk::DType::f32) std::memcpy(values.data(), tensor.data, tensor.bytes);
  if (tensor.dtype == sdk::DType::f32) return values;
  const auto* narrow = reinterpret_cast<const std::uint16_t*>(tensor.data);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = tensor.dtype == sdk::DType::bf16 ? std::bit_cast<float>(static_cast<std::uint32_t>(narrow[i]) << 16)
                                                 : widen_f16(narrow[i]);
  return values;
}

}  // namespace tessera
