#include "cpu_backend.h"

#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string>

#include "tessera/sdk/numerics.h"
#include "tessera/sdk/register.h"

namespace tessera_cpu {

namespace sdk = tessera::sdk;
using sdk::Code;
using sdk::CpuIsa;
using sdk::Status;

namespace {

constexpr std::int32_t kRowBlock = 192;  // rows of one task when a weight has few panels

CpuIsa best_isa() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return CpuIsa::avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return CpuIsa::avx2;
  return CpuIsa::scalar;
}

Status read_isa(sdk::Host& host, CpuIsa* out) {
  static const char* const kChoices[] = {"auto", "scalar", "avx2", "avx512"};
  std::size_t choice = 0;
  if (Status status = host.option_choice("isa", "auto", kChoices, 4, &choice); !status.ok()) return status;
  const CpuIsa best = best_isa();
  *out = choice == 0 ? best : static_cast<CpuIsa>(choice - 1);
  if (*out > best)
    return sdk::fail(Code::unsupported, std::string("backend option isa is ") + kChoices[choice] +
                                            " but this CPU has only " + kChoices[static_cast<int>(best) + 1] +
                                            "; use isa: auto");
  return {};
}

Status read_threads(sdk::Host& host, int* out) {
  const char* text = nullptr;
  if (Status status = host.option_text("threads", "auto", &text); !status.ok()) return status;
  if (std::strcmp(text, "auto") == 0) {
    *out = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 256);
    return {};
  }
  std::int64_t threads = 0;
  const Status status = host.option_int("threads", 1, 1, 256, &threads);
  *out = static_cast<int>(threads);
  return status;
}

const KernelTable& table_of(CpuIsa isa) {
  if (isa == CpuIsa::avx512) return avx512::kTable;
  return isa == CpuIsa::avx2 ? avx2::kTable : scalar::kTable;
}

/// rows[output][k] -> data[panel][k][64], in squares of 64 by 64 so that reads and writes both stay in the cache.
void pack_panel(const std::vector<const char*>& rows, sdk::DType stored, std::int64_t panel, std::int32_t inputs,
                void* data) {
  const std::int64_t first = panel * kPanel;
  const std::int64_t count = std::min<std::int64_t>(kPanel, static_cast<std::int64_t>(rows.size()) - first);
  for (std::int64_t begin = 0; begin < inputs; begin += kPanel)
    for (std::int64_t o = 0; o < count; ++o) {
      const char* row = rows[static_cast<std::size_t>(first + o)];
      const std::int64_t end = std::min<std::int64_t>(begin + kPanel, inputs);
      const std::int64_t base = first * inputs + o;
      for (std::int64_t k = begin; k < end; ++k) {
        const std::int64_t target = base + k * kPanel;
        if (stored == sdk::DType::f32)
          static_cast<float*>(data)[target] = reinterpret_cast<const float*>(row)[k];
        else if (stored == sdk::DType::bf16)
          static_cast<std::uint16_t*>(data)[target] = reinterpret_cast<const std::uint16_t*>(row)[k];
        else
          static_cast<float*>(data)[target] = sdk::widen_f16(reinterpret_cast<const std::uint16_t*>(row)[k]);
      }
    }
}

}  // namespace

CpuBackend::CpuBackend(sdk::Host& host, Status& status) {
  int threads = 1;
  status = read_isa(host, &isa_);
  if (status.ok()) status = read_threads(host, &threads);
  if (!status.ok()) return;
  kernels_ = &table_of(isa_);
  pool_ = std::make_unique<ThreadPool>(threads);
}

CpuBackend::~CpuBackend() {
  for (const Block& block : blocks_) munmap(block.data, block.bytes);
}

Status CpuBackend::bind(const sdk::StepLimits&) noexcept { return {}; }

sdk::DeviceContext CpuBackend::context() noexcept { return {sdk::Device::cpu, isa_, pool_.get(), nullptr}; }

Status CpuBackend::memory(std::size_t* total, std::size_t* free) noexcept {
  return sdk::guarded([&]() -> Status {
    std::FILE* file = std::fopen("/proc/meminfo", "r");
    if (file == nullptr) return sdk::fail(Code::internal, "/proc/meminfo cannot be read, so the memory is unknown");
    char line[256];
    unsigned long long kib = 0;
    *total = *free = 0;
    while (std::fgets(line, sizeof line, file) != nullptr) {
      if (std::sscanf(line, "MemTotal: %llu", &kib) == 1) *total = kib * 1024;
      if (std::sscanf(line, "MemAvailable: %llu", &kib) == 1) *free = kib * 1024;
    }
    std::fclose(file);
    return {};
  });
}

Status CpuBackend::allocate(std::size_t bytes, void** device) noexcept {
  return sdk::guarded([&]() -> Status {
    const std::size_t size = std::max<std::size_t>(bytes, 1);
    void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
      return sdk::fail(Code::resource_exhausted, "no " + std::to_string(size >> 20) + " MiB of memory can be had");
    blocks_.push_back({data, size});
    madvise(data, size, MADV_HUGEPAGE);
    std::memset(data, 0, size);  // claimed now, not in the middle of a step
    *device = data;
    return {};
  });
}

Status CpuBackend::upload(void* device, const void* host, std::size_t bytes) noexcept {
  std::memcpy(device, host, bytes);
  return {};
}

Status CpuBackend::download(void* host, const void* device, std::size_t bytes) noexcept {
  std::memcpy(host, device, bytes);
  return {};
}

Status CpuBackend::prepare_linear(const sdk::HostMatrix* parts, std::size_t count, const float* bias,
                                  const sdk::Linear** out) noexcept {
  return sdk::guarded([&]() -> Status {
    if (count == 0 || parts[0].cols <= 0)
      return sdk::fail(Code::invalid_argument, "a linear weight has no parts or no inputs");
    const sdk::DType stored = parts[0].dtype;
    const bool bf16 = stored == sdk::DType::bf16;
    const std::int32_t inputs = parts[0].cols;
    std::int32_t outputs = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (parts[i].dtype != stored || parts[i].cols != inputs)
        return sdk::fail(Code::invalid_argument, "parts of one linear weight differ in type or inputs");
      outputs += parts[i].rows;
    }
    if (stored != sdk::DType::f32 && stored != sdk::DType::bf16 && stored != sdk::DType::f16)
      return sdk::fail(Code::unsupported,
                       std::string("weights of type ") + sdk::dtype_name(stored) + "; wanted f32, bf16 or f16");
    const std::size_t element = bf16 ? 2 : 4;
    const std::int64_t panels = (outputs + kPanel - 1) / kPanel;
    auto weight = std::make_unique<Weight>();
    void* data = nullptr;
    const std::size_t bytes = static_cast<std::size_t>(panels) * static_cast<std::size_t>(inputs) * kPanel * element;
    if (Status status = allocate(bytes, &data); !status.ok()) return status;
    std::vector<const char*> rows;
    for (std::size_t part = 0; part < count; ++part)
      for (std::size_t row = 0; row < static_cast<std::size_t>(parts[part].rows); ++row)
        rows.push_back(static_cast<const char*>(parts[part].data) +
                       row * static_cast<std::size_t>(inputs) * sdk::dtype_bytes(stored));
    sdk::parallel_for(*pool_, panels, [&](std::int64_t panel) { pack_panel(rows, stored, panel, inputs, data); });
    void* kept_bias = nullptr;
    if (bias != nullptr) {
      const std::size_t size = static_cast<std::size_t>(outputs) * sizeof(float);
      if (Status status = allocate(size, &kept_bias); !status.ok()) return status;
      std::memcpy(kept_bias, bias, size);
    }
    weight->outputs = outputs;
    weight->inputs = inputs;
    weight->dtype = bf16 ? sdk::DType::bf16 : sdk::DType::f32;
    weight->bytes = bytes;
    weight->packed = {data, bf16, outputs, inputs, static_cast<const float*>(kept_bias)};
    *out = weight.get();
    weights_.push_back(std::move(weight));
    return {};
  });
}

Status CpuBackend::begin_step(const sdk::PackedRows& host, sdk::PackedRows* device) noexcept {
  *device = host;  // host memory is device memory
  return {};
}

Status CpuBackend::embed(const sdk::Linear& table, const sdk::PackedRows& rows, const sdk::Matrix& out) noexcept {
  const PackedLinear& packed = static_cast<const Weight&>(table).packed;
  sdk::parallel_for(*pool_, rows.num_rows, [&](std::int64_t row) {
    const std::int64_t token = rows.tokens[row];
    const std::int64_t base = (token / kPanel) * packed.inputs * kPanel + token % kPanel;
    float* target = out.f32(row);
    for (std::int64_t k = 0; k < packed.inputs; ++k)
      target[k] = packed.bf16 ? sdk::widen_bf16(static_cast<const std::uint16_t*>(packed.data)[base + k * kPanel])
                              : static_cast<const float*>(packed.data)[base + k * kPanel];
  });
  return {};
}

Status CpuBackend::rms_norm(const sdk::NormArgs& args) noexcept {
  sdk::parallel_for(*pool_, args.x.rows, [&](std::int64_t row) {
    kernels_->rms_norm_row(args.x.f32(row), args.delta == nullptr ? nullptr : args.delta->f32(row), args.weight,
                           args.eps, args.x.cols, args.out.f32(row));
  });
  return {};
}

Status CpuBackend::linear(const sdk::Linear& weight, const sdk::Matrix& x, const sdk::Matrix& y) noexcept {
  const PackedLinear& packed = static_cast<const Weight&>(weight).packed;
  const std::int64_t panels = (packed.outputs + kPanel - 1) / kPanel;
  const std::int64_t row_blocks = (x.rows + kRowBlock - 1) / kRowBlock;
  sdk::parallel_for(*pool_, panels * row_blocks, [&](std::int64_t task) {
    alignas(64) float scratch[sdk::kLinearSegment * kPanel];
    const auto begin = static_cast<std::int32_t>(task % row_blocks) * kRowBlock;
    kernels_->linear_panel(packed, task / row_blocks, x, y, begin, std::min(begin + kRowBlock, x.rows), scratch);
  });
  return {};
}

Status CpuBackend::rotary_append(const sdk::RotaryArgs& args) noexcept {
  sdk::parallel_for(*pool_, args.rows.num_rows,
                    [&](std::int64_t row) { kernels_->rotary_row(args, static_cast<std::int32_t>(row)); });
  return {};
}

Status CpuBackend::swiglu(const sdk::Matrix& gate_up, const sdk::Matrix& out) noexcept {
  sdk::parallel_for(*pool_, out.rows,
                    [&](std::int64_t row) { kernels_->swiglu_row(gate_up.f32(row), out.cols, out.f32(row)); });
  return {};
}

Status CpuBackend::gather(const sdk::Matrix& x, const sdk::Matrix* delta, const sdk::PackedRows& rows,
                          const sdk::Matrix& out) noexcept {
  sdk::parallel_for(*pool_, out.rows, [&](std::int64_t i) {
    const std::int32_t row = rows.logit_rows[i];
    const float* source = x.f32(row);
    float* target = out.f32(i);
    for (std::int32_t c = 0; c < out.cols; ++c)
      target[c] = delta == nullptr ? source[c] : source[c] + delta->f32(row)[c];
  });
  return {};
}

Status CpuBackend::load_states(const sdk::Matrix& bank, const sdk::PackedRows& rows, const sdk::Matrix& out) noexcept {
  sdk::parallel_for(*pool_, rows.num_rows, [&](std::int64_t row) {
    if (rows.slices[rows.row_slice[row]].depth > 0)
      std::memcpy(out.f32(row), bank.f32(rows.states[row]), static_cast<std::size_t>(out.cols) * sizeof(float));
  });
  return {};
}

Status CpuBackend::store_states(const sdk::Matrix& x, const sdk::PackedRows& rows, const sdk::Matrix& bank) noexcept {
  sdk::parallel_for(*pool_, rows.num_rows, [&](std::int64_t row) {
    if (rows.states[row] >= 0)
      std::memcpy(bank.f32(rows.states[row]), x.f32(row), static_cast<std::size_t>(x.cols) * sizeof(float));
  });
  return {};
}

Status CpuBackend::copy_kv(const sdk::KvView& kv, const sdk::KvCopy* copies, std::int32_t count) noexcept {
  const std::size_t bytes =
      static_cast<std::size_t>(kv.num_kv_heads) * static_cast<std::size_t>(kv.head_dim) * sizeof(float);
  sdk::parallel_for(*pool_, count, [&](std::int64_t i) {
    for (std::int32_t layer = 0; layer < kv.num_layers; ++layer)
      for (void* side : {kv.k, kv.v})
        std::memcpy(static_cast<float*>(side) + kv.offset(copies[i].to_page, layer, copies[i].slot, 0),
                    static_cast<float*>(side) + kv.offset(copies[i].from_page, layer, copies[i].slot, 0), bytes);
  });
  return {};
}

}  // namespace tessera_cpu

TESSERA_REGISTER_PLUGIN(tessera::sdk::Backend, tessera_cpu::CpuBackend, tessera::sdk::Device::cpu, "cpu", "0.1.0",
                        tessera::sdk::Traits{
                            tessera::sdk::kBatchInvariant | tessera::sdk::kChunkInvariant | tessera::sdk::kPortableBits,
                            1u << static_cast<unsigned>(tessera::sdk::DType::f32), 0, 0, ""})
