#include "model/decoder.h"

#include <cmath>

#include "tessera/sdk/numerics.h"

namespace tessera {

Result<std::unique_ptr<Decoder>> Decoder::load(const DecoderSpec& spec, WeightSource& weights, sdk::Backend& backend,
                                               const sdk::StepLimits& limits, bool captures) {
  std::unique_ptr<Decoder> decoder(new Decoder(spec, backend));
  const auto prepare = [&]() -> Status {
    TESSERA_TRY(
        decoder->load_fused(weights, -1, {TensorName::embedding}, {spec.vocab}, spec.hidden, {}, &decoder->embedding_));
    for (std::int32_t layer = 0; layer < spec.layers; ++layer) TESSERA_TRY(decoder->load_layer(weights, layer));
    TESSERA_TRY(decoder->load_vector(weights, TensorName::final_norm, -1, spec.hidden, &decoder->final_norm_));
    decoder->lm_head_ = decoder->embedding_;
    if (!spec.tied_embeddings)
      TESSERA_TRY(
          decoder->load_fused(weights, -1, {TensorName::lm_head}, {spec.vocab}, spec.hidden, {}, &decoder->lm_head_));
    if (spec.exit_gate)
      TESSERA_TRY(decoder->load_fused(weights, -1, {TensorName::exit_gate}, {1}, spec.hidden, {TensorName::exit_bias},
                                      &decoder->exit_gate_));
    TESSERA_TRY(decoder->load_rotary(limits.max_context));
    return decoder->claim(limits, captures);
  };
  if (Status status = prepare(); !status.ok()) return status;
  return decoder;
}

Status Decoder::load_layer(WeightSource& weights, std::int32_t index) {
  using enum TensorName::Part;
  const DecoderSpec& s = spec_;
  Layer layer{};
  TESSERA_TRY(load_vector(weights, attn_norm, index, s.hidden, &layer.attn_norm));
  TESSERA_TRY(load_vector(weights, mlp_norm, index, s.hidden, &layer.mlp_norm));
  if (s.norms == NormPlacement::sandwich) {
    TESSERA_TRY(load_vector(weights, attn_norm_after, index, s.hidden, &layer.attn_norm_after));
    TESSERA_TRY(load_vector(weights, mlp_norm_after, index, s.hidden, &layer.mlp_norm_after));
  }
  if (s.qk_norm) {
    TESSERA_TRY(load_vector(weights, q_norm, index, s.head_dim, &layer.q_norm));
    TESSERA_TRY(load_vector(weights, k_norm, index, s.head_dim, &layer.k_norm));
  }
  std::vector<TensorName::Part> qkv_biases, output_biases, mlp_biases, down_biases;
  if (s.qkv_bias) qkv_biases = {q_bias, k_bias, v_bias};
  if (s.output_bias) output_biases = {o_bias};
  if (s.mlp_bias) mlp_biases = {gate_bias, up_bias}, down_biases = {down_bias};
  TESSERA_TRY(load_fused(weights, index, {q, k, v}, {s.q_width(), s.kv_width(), s.kv_width()}, s.hidden, qkv_biases,
                         &layer.qkv));
  TESSERA_TRY(load_fused(weights, index, {o}, {s.hidden}, s.q_width(), output_biases, &layer.output));
  TESSERA_TRY(
      load_fused(weights, index, {gate, up}, {s.intermediate, s.intermediate}, s.hidden, mlp_biases, &layer.gate_up));
  TESSERA_TRY(load_fused(weights, index, {down}, {s.hidden}, s.intermediate, down_biases, &layer.down));
  layers_.push_back(layer);
  return {};
}

Status Decoder::load_fused(WeightSource& weights, std::int32_t layer, std::vector<TensorName::Part> parts,
                           std::vector<std::int32_t> rows, std::int32_t cols, std::vector<TensorName::Part> biases,
                           const sdk::Linear** out) {
  std::vector<sdk::HostMatrix> matrices;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto matrix = weights.matrix(parts[i], layer, rows[i], cols);
    if (!matrix.ok()) return matrix.status();
    matrices.push_back(*matrix);
  }
  std::vector<float> bias;
  for (std::size_t i = 0; i < biases.size(); ++i) {
    auto part = weights.vector(biases[i], layer, rows[i]);
    if (!part.ok()) return part.status();
    bias.insert(bias.end(), part->begin(), part->end());
  }
  return backend_.prepare_linear(matrices.data(), matrices.size(), bias.empty() ? nullptr : bias.data(), out);
}

Status Decoder::load_vector(WeightSource& weights, TensorName::Part part, std::int32_t layer, std::int32_t size,
                            const float** out) {
  auto values = weights.vector(part, layer, size);
  if (!values.ok()) return values.status();
  return upload_floats(*values, out);
}

Status Decoder::upload_floats(const std::vector<float>& values, const float** out) {
  void* device = nullptr;
  TESSERA_TRY(backend_.allocate(values.size() * sizeof(float), &device));
  TESSERA_TRY(backend_.upload(device, values.data(), values.size() * sizeof(float)));
  *out = static_cast<const float*>(device);
  return {};
}

Status Decoder::load_rotary(std::int32_t max_context) {
  const std::int32_t half = spec_.rotary.dim / 2;
  std::vector<float> cosines, sines;
  for (std::int32_t position = 0; position < max_context; ++position)
    for (std::int32_t i = 0; i < half; ++i) {
      const double frequency = std::pow(spec_.rotary.theta, -2.0 * i / spec_.rotary.dim);
      cosines.push_back(static_cast<float>(std::cos(position * frequency)));
      sines.push_back(static_cast<float>(std::sin(position * frequency)));
    }
  TESSERA_TRY(upload_floats(cosines, &cosines_));
  return upload_floats(sines, &sines_);
}

Status Decoder::claim(const sdk::StepLimits& limits, bool captures) {
  const auto buffer = [&](sdk::Matrix& matrix, std::int32_t rows, std::int32_t cols) {
    matrix = {nullptr, sdk::DType::f32, rows, cols, cols};
    return backend_.allocate(static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols) * sizeof(float),
                             &matrix.data);
  };
  const DecoderSpec& s = spec_;
  TESSERA_TRY(buffer(hidden_, limits.max_rows, s.hidden));
  TESSERA_TRY(buffer(delta_, limits.max_rows, s.hidden));
  TESSERA_TRY(buffer(normed_, limits.max_rows, s.hidden));
  TESSERA_TRY(buffer(qkv_, limits.max_rows, s.q_width() + 2 * s.kv_width()));
  TESSERA_TRY(buffer(q_, limits.max_rows, s.q_width()));
  TESSERA_TRY(buffer(attended_, limits.max_rows, s.q_width()));
  TESSERA_TRY(buffer(gate_up_, limits.max_rows, 2 * s.intermediate));
  TESSERA_TRY(buffer(gated_, limits.max_rows, s.intermediate));
  max_context_ = limits.max_context;
  if (captures) {
    sdk::Matrix scores{};
    TESSERA_TRY(buffer(scores, limits.max_decode_rows * s.q_heads, limits.max_context));
    scores_ = static_cast<float*>(scores.data);
    TESSERA_TRY(buffer(masses_, s.layers, limits.max_decode_rows * s.q_heads));
  }
  if (s.loops > 1) TESSERA_TRY(buffer(states_, num_states(s, limits), s.hidden));
  if (s.exit_gate) TESSERA_TRY(buffer(gates_, limits.max_logit_rows, 1));
  TESSERA_TRY(buffer(last_, limits.max_logit_rows, s.hidden));
  return buffer(logits_, limits.max_logit_rows, s.vocab);
}

sdk::PackedRows group_of(const sdk::PackedRows& step, const RowGroup& group) {
  sdk::PackedRows rows = step;
  rows.num_rows = group.num_rows;
  rows.num_slices = group.num_slices;
  rows.tokens += group.first_row;
  rows.positions += group.first_row;
  rows.row_slice += group.first_row;
  rows.slices += group.first_slice;
  if (rows.states != nullptr) rows.states += group.first_row;
  if (rows.references != nullptr) rows.references += group.first_row;
  if (rows.list_first != nullptr) rows.list_first += group.first_row;
  return rows;
}

sdk::PackedRows kept_of(const sdk::PackedRows& step, const RowGroup& group) {
  RowGroup kept = group;
  kept.first_row = group.first_kept_row, kept.first_slice = group.first_kept_slice;
  return group_of(step, kept);
}

namespace {

sdk::Matrix part_of(const sdk::Matrix& buffer, const RowGroup& group) {
  sdk::Matrix view = buffer;
  view.data = static_cast<float*>(buffer.data) + group.first_row * buffer.stride;
  view.rows = group.num_rows;
  return view;
}

}  // namespace

sdk::Matrix Decoder::rows_of(const sdk::Matrix& buffer, std::int32_t rows) const {
  sdk::Matrix view = buffer;
  view.rows = rows;
  return view;
}

std::size_t Decoder::weight_bytes() const {
  std::size_t bytes = lm_head_->bytes;
  for (const Layer& layer : layers_)
    bytes += layer.qkv->bytes + layer.output->bytes + layer.gate_up->bytes + layer.down->bytes;
  return bytes;
}

float* Decoder::masses_of(std::int32_t layer) const { return masses_.f32(layer); }

Status Decoder::attend_group(const PassContext& context, const RowGroup& group, std::int32_t layer,
                             const sdk::PackedRows& rows) {
  const sdk::Matrix q = part_of(q_, group), attended = part_of(attended_, group);
  const sdk::SparseArgs sparse{q,       attended,     context.kv,      layer, rows, context.sparse_workspace,
                               scores_, max_context_, masses_of(layer)};
  if (group.mode == sdk::RowMode::consume) return context.sparse->consume(sparse, backend_.context());
  if (group.mode == sdk::RowMode::select) return attend_kept(context, group, layer, q, attended);
  const bool captures = group.mode == sdk::RowMode::capture;
  // A plugin plans one step at a time, and here are two.
  if (context.groups.size() > 1) TESSERA_TRY(context.attention.plan(group_of(host_, group)));
  TESSERA_TRY(context.attention.run({q, attended, context.kv, layer, rows, context.workspace,
                                     captures ? scores_ : nullptr, captures ? std::int64_t{max_context_} : 0},
                                    backend_.context()));
  return captures ? context.sparse->capture(sparse, backend_.context()) : Status{};
}

Status Decoder::attend_kept(const PassContext& context, const RowGroup& group, std::int32_t layer, const sdk::Matrix& q,
                            const sdk::Matrix& attended) {
  const sdk::PackedRows kept = kept_of(device_, group);
  // The plugin fills in pages that the step's metadata has room for; on the device they are ours to write.
  TESSERA_TRY(context.sparse->select({q, context.kv, layer, group_of(device_, group), kept.slices,
                                      const_cast<std::int32_t*>(kept.pages), context.sparse_workspace},
                                     backend_.context()));
  if (context.groups.size() > 1) TESSERA_TRY(context.attention.plan(kept_of(host_, group)));
  return context.attention.run({q, attended, context.kv, layer, kept, context.workspace, nullptr, 0},
                               backend_.context());
}

Status Decoder::attend(const PassContext& context, std::int32_t index, const sdk::PackedRows& device) {
  const Layer& layer = layers_[static_cast<std::size_t>(index)];
  for (const RowGroup& group : context.groups) {
    const sdk::PackedRows rows = group_of(device, group);
    TESSERA_TRY(backend_.rotary_append({part_of(qkv_, group), part_of(q_, group), spec_.q_heads, spec_.kv_heads,
                                        spec_.head_dim, spec_.rotary.dim, cosines_, sines_, layer.q_norm, layer.k_norm,
                                        spec_.norm_eps, context.kv, index, rows}));
    if (context.sparse != nullptr && context.sparse->style() == sdk::SparseStyle::tables)
      TESSERA_TRY(context.sparse->appended({{}, context.kv, index, rows, nullptr, nullptr, context.sparse_workspace},
                                           backend_.context()));
    TESSERA_TRY(attend_group(context, group, index, rows));
  }
  return {};
}

Status Decoder::run_layer(const PassContext& context, std::int32_t index, const sdk::PackedRows& device) {
  const Layer& layer = layers_[static_cast<std::size_t>(index)];
  const std::int32_t n = device.num_rows;
  const sdk::Matrix hidden = rows_of(hidden_, n), delta = rows_of(delta_, n), normed = rows_of(normed_, n);
  const sdk::Matrix gate_up = rows_of(gate_up_, n), gated = rows_of(gated_, n);
  TESSERA_TRY(backend_.rms_norm({hidden, index == 0 ? nullptr : &delta, layer.attn_norm, spec_.norm_eps, normed}));
  TESSERA_TRY(backend_.linear(*layer.qkv, normed, rows_of(qkv_, n)));
  TESSERA_TRY(attend(context, index, device));
  TESSERA_TRY(backend_.linear(*layer.output, rows_of(attended_, n), delta));
  TESSERA_TRY(finish_sublayer(layer.attn_norm_after, delta));
  TESSERA_TRY(backend_.rms_norm({hidden, &delta, layer.mlp_norm, spec_.norm_eps, normed}));
  TESSERA_TRY(backend_.linear(*layer.gate_up, normed, gate_up));
  TESSERA_TRY(backend_.swiglu(gate_up, gated));
  TESSERA_TRY(backend_.linear(*layer.down, gated, delta));
  return finish_sublayer(layer.mlp_norm_after, delta);
}

Status Decoder::finish_sublayer(const float* norm_after, const sdk::Matrix& delta) {
  if (norm_after == nullptr) return {};
  return backend_.rms_norm({delta, nullptr, norm_after, spec_.norm_eps, delta});
}

Result<GraphKey> Decoder::plan_pass(const PassContext& context, const sdk::PackedRows& host,
                                    const sdk::PackedRows& device) {
  host_ = host, device_ = device;
  host_.num_rows = 0;  // kept rows come behind those that are computed
  for (const RowGroup& group : context.groups) host_.num_rows += group.num_rows;
  device_.num_rows = host_.num_rows;
  TESSERA_TRY(plan(context));
  return key_;
}

Status Decoder::plan(const PassContext& context) {
  const auto number = [](std::int32_t value) { return static_cast<std::uint64_t>(value); };
  key_ = {number(host_.num_rows), number(host_.num_logit_rows)};
  bool known = true;
  const auto depends_on = [&](std::uint64_t topology) {
    known = known && topology != 0;
    key_.push_back(topology);
  };
  for (const RowGroup& group : context.groups) {
    for (const std::int32_t value : {static_cast<std::int32_t>(group.mode), group.num_rows, group.num_slices})
      key_.push_back(number(value));
    if (group.mode != sdk::RowMode::consume) {
      TESSERA_TRY(
          context.attention.plan(group.mode == sdk::RowMode::select ? kept_of(host_, group) : group_of(host_, group)));
      depends_on(context.attention.topology());
    }
    if (group.mode != sdk::RowMode::dense) {
      TESSERA_TRY(context.sparse->plan(group.mode, group_of(host_, group)));
      depends_on(context.sparse->topology(group.mode));
    }
  }
  if (!known) key_.clear();
  return {};
}

Status Decoder::forward(const PassContext& context, const sdk::PackedRows& packed, bool want_masses,
                        PassAnswer& answer) {
  answer.logits.clear(), answer.exits.clear(), answer.masses.clear();
  sdk::PackedRows device{};
  TESSERA_TRY(backend_.begin_step(packed, &device));
  const auto key = plan_pass(context, packed, device);
  if (!key.ok()) return key.status();
  const auto launch = [&] { return enqueue(context); };
  TESSERA_TRY(key->empty() ? context.graphs.run_eager(launch) : context.graphs.run(*key, launch));
  if (want_masses) TESSERA_TRY(read_masses(context, answer.masses));
  return fetch_answer(answer);
}

Status Decoder::enqueue(const PassContext& context) {
  const sdk::Matrix hidden = rows_of(hidden_, host_.num_rows), normed = rows_of(normed_, host_.num_rows);
  const sdk::Matrix delta = rows_of(delta_, host_.num_rows), last = rows_of(last_, host_.num_logit_rows);
  TESSERA_TRY(backend_.embed(*embedding_, device_, hidden));
  if (spec_.loops > 1)
    for (const RowGroup& group : context.groups)
      TESSERA_TRY(backend_.load_states(states_, group_of(device_, group), part_of(hidden_, group)));
  for (std::int32_t layer = 0; layer < spec_.layers; ++layer) TESSERA_TRY(run_layer(context, layer, device_));
  if (spec_.loops > 1) {  // the final norm is inside the recurrence: every row needs it
    TESSERA_TRY(backend_.rms_norm({hidden, &delta, final_norm_, spec_.norm_eps, normed}));
    TESSERA_TRY(backend_.store_states(normed, device_, states_));
    TESSERA_TRY(backend_.gather(normed, nullptr, device_, last));
  } else {
    TESSERA_TRY(backend_.gather(hidden, &delta, device_, last));
    TESSERA_TRY(backend_.rms_norm({last, nullptr, final_norm_, spec_.norm_eps, last}));
  }
  return last.rows == 0 ? Status{} : enqueue_answer(last);
}

Status Decoder::read_states(std::int32_t count, std::vector<float>& states) const {
  const std::size_t before = states.size();
  states.resize(before + static_cast<std::size_t>(count) * static_cast<std::size_t>(spec_.hidden));
  return backend_.download(states.data() + before, states_.data, (states.size() - before) * sizeof(float));
}

Status Decoder::read_masses(const PassContext& context, std::vector<float>& masses) const {
  for (const RowGroup& group : context.groups) {
    if (group.mode != sdk::RowMode::capture) continue;
    const auto each = static_cast<std::size_t>(group.num_rows) * static_cast<std::size_t>(spec_.q_heads);
    masses.resize(each * layers_.size());
    for (std::size_t layer = 0; layer < layers_.size(); ++layer)
      TESSERA_TRY(backend_.download(masses.data() + each * layer, masses_of(static_cast<std::int32_t>(layer)),
                                    each * sizeof(float)));
  }
  return {};
}

Status Decoder::enqueue_answer(const sdk::Matrix& last) {
  TESSERA_TRY(backend_.linear(*lm_head_, last, rows_of(logits_, last.rows)));
  return exit_gate_ == nullptr ? Status{} : backend_.linear(*exit_gate_, last, rows_of(gates_, last.rows));
}

Status Decoder::fetch_answer(PassAnswer& answer) {
  const auto wanted = static_cast<std::size_t>(host_.num_logit_rows);
  if (wanted == 0) return {};
  if (exit_gate_ != nullptr) {
    answer.exits.resize(wanted);
    TESSERA_TRY(backend_.download(answer.exits.data(), gates_.data, wanted * sizeof(float)));
    for (float& gate : answer.exits) gate = sdk::sigmoid_f32(gate);
  }
  return read_logits(host_.num_logit_rows, answer.logits);
}

Status Decoder::read_logits(std::int32_t rows, std::vector<float>& logits) const {
  logits.resize(static_cast<std::size_t>(rows) * static_cast<std::size_t>(spec_.vocab));
  return backend_.download(logits.data(), logits_.data, logits.size() * sizeof(float));
}

}  // namespace tessera
