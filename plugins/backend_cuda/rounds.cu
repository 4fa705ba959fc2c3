#include <algorithm>
#include <cmath>
#include <cstring>

#include "rounds.h"
#include "tessera/sdk/cuda.h"

namespace tessera_cuda {

namespace sdk = tessera::sdk;
using sdk::cuda_status;
using sdk::Status;

namespace {

constexpr int kDrawThreads = 1024;
constexpr int kThreads = 256;

unsigned blocks_for(std::int32_t count) { return static_cast<unsigned>((count + kThreads - 1) / kThreads); }

/// Candidates for the best token; a token of -1 may not be drawn, and none beats it.
struct Best {
  float logit;
  std::int32_t token;
};

/// NaN wins, then the larger logit, then the lower token.
__device__ Best better(Best a, Best b) {
  if (isnan(a.logit) || isnan(b.logit)) return {NAN, -1};
  if (a.logit != b.logit) return a.logit > b.logit ? a : b;
  if (a.token < 0 || b.token < 0) return a.token < 0 ? b : a;
  return a.token < b.token ? a : b;
}

__device__ Best best_of_warp(Best mine) {
  for (int width = 16; width > 0; width /= 2)
    mine = better(mine, {__shfl_xor_sync(sdk::kWholeWarp, mine.logit, width),
                         __shfl_xor_sync(sdk::kWholeWarp, mine.token, width)});
  return mine;
}

}  // namespace

/// The kernels, which may see the board.
struct RoundKernels {
  using Board = CudaRounds::Board;
};

namespace {

using Board = RoundKernels::Board;

__device__ std::int32_t& at(std::int32_t* values, const sdk::RowSource& source) {
  return values[source.sequence * sdk::kMostRoundRows + source.offset];
}

__global__ void begin_kernel(Board board, std::int32_t count) {
  const auto i = static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  const sdk::RoundSequence sequence = board.sequences[i];
  if (sequence.first != 0) board.frontiers[sequence.slot] = {sequence.token, sequence.position};
  at(board.candidates, {i, 0}) = board.frontiers[sequence.slot].token;
}

__device__ std::int32_t position_of(const Board& board, const sdk::RowSource& source) {
  return board.frontiers[board.sequences[source.sequence].slot].position + source.offset;
}

__global__ void place_kernel(Board board, SourceRows sources, std::int32_t num_rows, std::int32_t num_slices,
                             std::int32_t* tokens, std::int32_t* positions, sdk::Slice* slices) {
  const auto i = static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < num_rows) {
    tokens[i] = at(board.candidates, sources.rows[i]);
    positions[i] = position_of(board, sources.rows[i]);
  }
  if (i < num_slices) slices[i].first_position = position_of(board, sources.slices[i]);
}

__global__ void __launch_bounds__(kDrawThreads)
    draw_kernel(Board board, SourceRows sources, const std::int32_t* logit_rows, sdk::Matrix logits, bool verified) {
  __shared__ Best of_warps[kDrawThreads / 32];
  const float* row = logits.f32(blockIdx.x);
  Best best{-INFINITY, -1};
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < logits.cols; i += kDrawThreads)
    if (const float logit = row[i]; logit > -INFINITY || isnan(logit)) best = better(best, {logit, i});
  best = best_of_warp(best);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = best;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  best = best_of_warp(of_warps[threadIdx.x]);
  if (threadIdx.x != 0) return;
  sdk::RowSource source = sources.rows[logit_rows[blockIdx.x]];
  if (verified) {
    at(board.targets, source) = best.token;
  } else {
    ++source.offset;
    at(board.candidates, source) = max(best.token, 0);  // the verification judges
  }
}

__global__ void accept_kernel(Board board, std::int32_t count, std::int32_t rows) {
  const auto i = static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  std::int32_t confirmed = 0;
  while (confirmed + 1 < rows && at(board.candidates, {i, confirmed + 1}) == at(board.targets, {i, confirmed}))
    ++confirmed;
  auto& frontier = board.frontiers[board.sequences[i].slot];
  frontier = {max(at(board.targets, {i, confirmed}), 0), frontier.position + confirmed + 1};
  sdk::RoundAnswer& answer = board.answers[i];
  answer.confirmed = confirmed;
  answer.position = frontier.position;
  for (std::int32_t row = 0; row < rows; ++row) answer.tokens[row] = at(board.targets, {i, row});
}

template <class T>
cudaError_t claim(T*& data, std::size_t count) {
  const cudaError_t error = cudaMalloc(reinterpret_cast<void**>(&data), count * sizeof(T));
  return error == cudaSuccess ? cudaMemset(data, 0, count * sizeof(T)) : error;
}

}  // namespace

CudaRounds::~CudaRounds() {
  for (const Bank& bank : banks_) {
    if (bank.done != nullptr) cudaEventDestroy(bank.done);
    cudaFreeHost(bank.sequences);
    cudaFreeHost(bank.answers);
  }
  cudaFree(board_.frontiers);
  cudaFree(board_.sequences);
  cudaFree(board_.candidates);
  cudaFree(board_.targets);
  cudaFree(board_.answers);
}

Status CudaRounds::bind(const sdk::RoundLimits& limits) noexcept {
  return sdk::guarded([&]() -> Status {
    limits_ = limits;
    if (Status status = cuda_status(cudaSetDevice(device_), "cudaSetDevice"); !status.ok()) return status;
    const auto sequences = static_cast<std::size_t>(limits.step.max_slices);
    cudaError_t error = claim(board_.frontiers, static_cast<std::size_t>(limits.frontiers));
    if (error == cudaSuccess) error = claim(board_.sequences, sequences);
    if (error == cudaSuccess) error = claim(board_.candidates, sequences * sdk::kMostRoundRows);
    if (error == cudaSuccess) error = claim(board_.targets, sequences * sdk::kMostRoundRows);
    if (error == cudaSuccess) error = claim(board_.answers, sequences);
    banks_.resize(static_cast<std::size_t>(limits.banks));
    for (Bank& bank : banks_) {
      if (error == cudaSuccess)
        error = cudaMallocHost(reinterpret_cast<void**>(&bank.sequences), sequences * sizeof *bank.sequences);
      if (error == cudaSuccess)
        error = cudaMallocHost(reinterpret_cast<void**>(&bank.answers), sequences * sizeof *bank.answers);
      if (error == cudaSuccess) error = cudaEventCreateWithFlags(&bank.done, cudaEventDisableTiming);
    }
    if (error == cudaSuccess) error = cudaDeviceSynchronize();  // the memory is zero
    if (Status status = cuda_status(error, "backend cuda: claiming memory for rounds in flight"); !status.ok())
      return status;
    for (std::int32_t pass = 0; pass < limits.passes; ++pass) {
      passes_.push_back(std::make_unique<StepStaging>());
      if (Status status = passes_.back()->bind(limits.step, limits.banks, true); !status.ok()) return status;
    }
    return {};
  });
}

Status CudaRounds::begin(std::int32_t index, const sdk::RoundSequence* sequences, std::int32_t count) noexcept {
  const Bank& bank = banks_[static_cast<std::size_t>(index)];
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof *sequences;
  cudaError_t error = cudaSetDevice(device_);
  if (error == cudaSuccess) error = cudaEventSynchronize(bank.done);  // what the bank held has been read
  if (error == cudaSuccess) {
    std::memcpy(bank.sequences, sequences, bytes);
    error = cudaMemcpyAsync(board_.sequences, bank.sequences, bytes, cudaMemcpyHostToDevice, stream_);
  }
  if (error != cudaSuccess) return cuda_status(error, "backend cuda: uploading a round");
  begin_kernel<<<blocks_for(count), kThreads, 0, stream_>>>(board_, count);
  return cuda_status(cudaGetLastError(), "backend cuda: beginning a round");
}

Status CudaRounds::stage(std::int32_t bank, std::int32_t pass, const sdk::PackedRows& host, const sdk::RowSource* rows,
                         const sdk::RowSource* slices, sdk::PackedRows* device) noexcept {
  return passes_[static_cast<std::size_t>(pass)]->send(host, stream_, device, bank, {rows, slices});
}

Status CudaRounds::place(std::int32_t pass, const sdk::PackedRows& device) noexcept {
  // The metadata lies in memory of ours.
  place_kernel<<<blocks_for(std::max(device.num_rows, device.num_slices)), kThreads, 0, stream_>>>(
      board_, passes_[static_cast<std::size_t>(pass)]->sources(), device.num_rows, device.num_slices,
      const_cast<std::int32_t*>(device.tokens), const_cast<std::int32_t*>(device.positions),
      const_cast<sdk::Slice*>(device.slices));
  return cuda_status(cudaGetLastError(), "backend cuda: placing the rows of a round");
}

Status CudaRounds::draw(std::int32_t pass, const sdk::PackedRows& device, const sdk::Matrix& logits,
                        bool verified) noexcept {
  if (device.num_logit_rows == 0) return {};
  draw_kernel<<<static_cast<unsigned>(device.num_logit_rows), kDrawThreads, 0, stream_>>>(
      board_, passes_[static_cast<std::size_t>(pass)]->sources(), device.logit_rows, logits, verified);
  return cuda_status(cudaGetLastError(), "backend cuda: drawing the tokens of a round");
}

Status CudaRounds::accept(std::int32_t count) noexcept {
  accept_kernel<<<blocks_for(count), kThreads, 0, stream_>>>(board_, count, limits_.rows);
  return cuda_status(cudaGetLastError(), "backend cuda: accepting a round");
}

Status CudaRounds::send(std::int32_t index, std::int32_t count) noexcept {
  const Bank& bank = banks_[static_cast<std::size_t>(index)];
  cudaError_t error =
      cudaMemcpyAsync(bank.answers, board_.answers, static_cast<std::size_t>(count) * sizeof *bank.answers,
                      cudaMemcpyDeviceToHost, stream_);
  if (error == cudaSuccess) error = cudaEventRecord(bank.done, stream_);
  return cuda_status(error, "backend cuda: sending the answers of a round");
}

Status CudaRounds::receive(std::int32_t index, sdk::RoundAnswer* answers, std::int32_t count) noexcept {
  const Bank& bank = banks_[static_cast<std::size_t>(index)];
  const Status status = cuda_status(cudaEventSynchronize(bank.done), "backend cuda: waiting for a round");
  if (status.ok() && answers != nullptr) std::copy_n(bank.answers, count, answers);
  return status;
}

}  // namespace tessera_cuda
