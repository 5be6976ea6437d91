#include "worker/model/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace penstock {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr float kImpossible = -9999.0f;
constexpr int64_t kBlock = 512;  // weights summed together
// The kernel's exp ends at e^-87: a weight below this has no probability at all.
constexpr float kNothing = 3e-38f;

bool Better(float a_value, TokenId a, float b_value, TokenId b) {
  return a_value != b_value ? a_value > b_value : a < b;
}

float ToLogprob(double value) {
  return value > kImpossible ? static_cast<float>(value) : kImpossible;
}

TokenId ArgMax(std::span<const float> logits, float largest) {
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] == largest) return static_cast<TokenId>(i);
  }
  return 0;
}

float Largest(std::span<const float> logits) {
  float largest = kMinusInfinity;
  for (const float l : logits) largest = std::max(largest, l);
  return largest;
}

}  // namespace

double PhiloxUniform(uint64_t seed, uint32_t choice, uint32_t output_index) {
  uint32_t counter[4] = {output_index, choice, 0, 0};
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    const uint32_t next[4] = {
        static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
        static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    std::copy(next, next + 4, counter);
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  const uint64_t bits = (uint64_t{counter[0]} << 32 | counter[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

void SamplerState::Init(const SamplingParams& params, std::span<const TokenId> prompt_ids,
                        std::span<const TokenId> output_ids, int32_t vocab_size) {
  params_ = params;
  seen_.clear();
  counts_.clear();
  present_.clear();
  if (!penalties()) return;
  counts_.resize(static_cast<size_t>(vocab_size));
  present_.resize(static_cast<size_t>(vocab_size));
  for (const TokenId id : prompt_ids) {
    if (present_[static_cast<size_t>(id)] != 0) continue;
    present_[static_cast<size_t>(id)] = 1;
    seen_.push_back(id);
  }
  for (const TokenId id : output_ids) CountOutput(id);
}

bool SamplerState::penalties() const {
  return params_.presence_penalty != 0 || params_.frequency_penalty != 0 ||
         params_.repetition_penalty != 1;
}

void SamplerState::CountOutput(TokenId token) {
  if (counts_.empty()) return;
  ++counts_[static_cast<size_t>(token)];
  if (present_[static_cast<size_t>(token)] != 0) return;
  present_[static_cast<size_t>(token)] = 1;
  seen_.push_back(token);
}

bool SamplerState::ChangesLogits(int32_t output_index) const {
  return !seen_.empty() || !params_.logit_bias.empty() || !params_.allowed_token_ids.empty() ||
         (output_index < params_.min_tokens && !params_.eos_and_stop_ids.empty());
}

void SamplerState::ChangeLogits(int32_t output_index, std::span<float> logits) const {
  const auto known = [&logits](TokenId id) {
    return id >= 0 && static_cast<size_t>(id) < logits.size();
  };
  if (!params_.allowed_token_ids.empty()) {
    std::vector<std::pair<TokenId, float>> kept;
    for (const TokenId id : params_.allowed_token_ids) {
      if (known(id)) kept.emplace_back(id, logits[static_cast<size_t>(id)]);
    }
    std::fill(logits.begin(), logits.end(), kMinusInfinity);
    for (const auto& [id, logit] : kept) logits[static_cast<size_t>(id)] = logit;
  }
  for (const auto& [id, bias] : params_.logit_bias) {
    if (known(id)) logits[static_cast<size_t>(id)] += bias;
  }
  for (const TokenId id : seen_) {
    float& logit = logits[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / params_.repetition_penalty : logit * params_.repetition_penalty;
    const int32_t count = counts_[static_cast<size_t>(id)];
    if (count == 0) continue;  // presence and frequency look at the output alone
    logit -= params_.presence_penalty + params_.frequency_penalty * static_cast<float>(count);
  }
  if (output_index < params_.min_tokens) {
    for (const TokenId id : params_.eos_and_stop_ids) {
      if (known(id)) logits[static_cast<size_t>(id)] = kMinusInfinity;
    }
  }
}

Sampler::Sampler(const kernels::CpuKernels& kernels, int32_t vocab_size)
    : kernels_(kernels),
      vocab_size_(vocab_size),
      changed_(static_cast<size_t>(vocab_size)),
      weights_(static_cast<size_t>(vocab_size)),
      block_totals_((static_cast<size_t>(vocab_size) + kBlock - 1) / kBlock) {
  candidates_.reserve(static_cast<size_t>(vocab_size));
}

SampledToken Sampler::Sample(const SamplerState& state, std::span<const float> raw,
                             std::span<const uint32_t> allowed, int32_t output_index,
                             std::vector<TokenLogprob>* logprobs) {
  const SamplingParams& params = state.params();
  bool finite = true;
  const float raw_largest = kernels_.max_finite(raw.data(), vocab_size_, &finite);
  if (!finite) return {.nonfinite = true};
  std::span<const float> logits = raw;
  float largest = raw_largest;
  if (state.ChangesLogits(output_index) || !allowed.empty()) {
    std::copy(raw.begin(), raw.end(), changed_.begin());
    state.ChangeLogits(output_index, changed_);
    for (size_t i = 0; !allowed.empty() && i < changed_.size(); ++i) {
      if ((allowed[i / 32] >> (i % 32) & 1u) == 0) changed_[i] = kMinusInfinity;
    }
    logits = changed_;
    largest = Largest(logits);
    if (!(largest > kMinusInfinity)) return {.nonfinite = true};
  }
  SampledToken result;
  const bool greedy = params.temperature <= 0;
  result.token = greedy ? ArgMax(logits, largest) : Draw(params, logits, largest, output_index);
  if (params.top_logprobs < 0) return result;
  if (!params.processed_logprobs) {
    result.rank = AddLogprobs(params, raw, raw_largest, result.token, logprobs);
  } else if (greedy) {
    result.rank = AddLogprobs(params, logits, largest, result.token, logprobs);
  } else {
    result.rank = AddCandidateLogprobs(params, result.token, logprobs);
  }
  return result;
}

TokenId Sampler::Draw(const SamplingParams& params, std::span<const float> logits, float largest,
                      int32_t output_index) {
  const float scale = 1.0f / std::max(params.temperature, 1e-10f);
  double total = 0;
  for (size_t b = 0; b < block_totals_.size(); ++b) {
    const size_t first = b * kBlock;
    const auto count = static_cast<int64_t>(std::min<size_t>(kBlock, logits.size() - first));
    block_totals_[b] = static_cast<double>(
        kernels_.exp_sum(logits.data() + first, largest, scale, weights_.data() + first, count));
    total += block_totals_[b];
  }
  const double uniform =
      PhiloxUniform(params.seed, params.choice, static_cast<uint32_t>(output_index));
  const bool filtered = params.top_p < 1 || params.min_p > 0 ||
                        (params.top_k > 0 && params.top_k < vocab_size_) ||
                        (params.processed_logprobs && params.top_logprobs >= 0);
  return filtered ? DrawFiltered(params, total, uniform) : DrawFromAll(total, uniform);
}

TokenId Sampler::DrawFromAll(double total, double uniform) {
  double target = uniform * total;
  size_t block = 0;
  while (block + 1 < block_totals_.size() && target >= block_totals_[block]) {
    target -= block_totals_[block++];
  }
  TokenId last = 0;
  const size_t first = block * kBlock;
  const size_t end = std::min(first + kBlock, weights_.size());
  for (size_t i = first; i < end; ++i) {
    if (weights_[i] < kNothing) continue;
    last = static_cast<TokenId>(i);
    target -= static_cast<double>(weights_[i]);
    if (target < 0) return last;
  }
  // Rounding left a rest past the block's end: its last possible token, or the best one.
  if (weights_[static_cast<size_t>(last)] >= kNothing) return last;
  return static_cast<TokenId>(std::max_element(weights_.begin(), weights_.end()) -
                              weights_.begin());
}

// Filters in this order: min_p, top_k, top_p (of what is left).
TokenId Sampler::DrawFiltered(const SamplingParams& params, double total, double uniform) {
  const bool use_k = params.top_k > 0 && params.top_k < vocab_size_;
  const float floor = std::max(params.min_p, kNothing);
  const double wanted =
      params.top_p < 1 && params.min_p <= 0 ? static_cast<double>(params.top_p) * total : 0;
  // Collect weights above a cut, lowering it until what the filters keep is among them. With both
  // top_k and top_p the k best are needed whole, for top_p is a share of their sum.
  for (float cut = 0x1p-6f;; cut *= 0x1p-12f) {
    if (params.min_p > 0 || (params.top_p >= 1 && !use_k)) cut = floor;
    cut = std::max(cut, floor);
    candidates_.clear();
    double mass = 0;
    for (size_t i = 0; i < weights_.size(); ++i) {
      if (weights_[i] < cut) continue;
      candidates_.push_back({weights_[i], static_cast<TokenId>(i)});
      mass += static_cast<double>(weights_[i]);
    }
    if (cut <= floor) break;
    if (use_k ? candidates_.size() >= static_cast<size_t>(params.top_k) : mass >= wanted) break;
  }
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
    return Better(a.weight, a.id, b.weight, b.id);
  });
  if (use_k && candidates_.size() > static_cast<size_t>(params.top_k)) {
    candidates_.resize(static_cast<size_t>(params.top_k));
  }
  double kept = 0;
  for (const Candidate& c : candidates_) kept += static_cast<double>(c.weight);
  if (params.top_p < 1) {
    const double goal =
        static_cast<double>(params.top_p) * (use_k || params.min_p > 0 ? kept : total);
    kept = 0;
    size_t count = 0;
    while (count < candidates_.size() && (count == 0 || kept < goal)) {
      kept += static_cast<double>(candidates_[count++].weight);
    }
    candidates_.resize(count);
  }
  double target = uniform * kept;
  for (const Candidate& c : candidates_) {
    target -= static_cast<double>(c.weight);
    if (target < 0) return c.id;
  }
  return candidates_.back().id;
}

int32_t Sampler::AddLogprobs(const SamplingParams& params, std::span<const float> logits,
                             float largest, TokenId token, std::vector<TokenLogprob>* out) {
  double total = 0;
  for (size_t first = 0; first < logits.size(); first += kBlock) {
    const auto count = static_cast<int64_t>(std::min<size_t>(kBlock, logits.size() - first));
    total += static_cast<double>(
        kernels_.exp_sum(logits.data() + first, largest, 1.0f, weights_.data() + first, count));
  }
  const double log_total = static_cast<double>(largest) + std::log(total);
  const auto logprob = [&](float logit) {
    return ToLogprob(static_cast<double>(logit) - log_total);
  };
  const float sampled = logits[static_cast<size_t>(token)];
  const auto wanted = static_cast<size_t>(std::min(params.top_logprobs, vocab_size_));
  best_.clear();
  int32_t rank = 1;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > sampled) ++rank;
    if (wanted == 0 || (best_.size() == wanted && logits[i] <= best_.back().logprob)) continue;
    if (best_.size() == wanted) best_.pop_back();
    auto place = best_.end();
    while (place != best_.begin() && std::prev(place)->logprob < logits[i]) --place;
    best_.insert(place, {static_cast<TokenId>(i), logits[i]});
  }
  out->push_back({token, logprob(sampled)});
  for (const TokenLogprob& best : best_) out->push_back({best.token, logprob(best.logprob)});
  return rank;
}

int32_t Sampler::AddCandidateLogprobs(const SamplingParams& params, TokenId token,
                                      std::vector<TokenLogprob>* out) const {
  double total = 0;
  for (const Candidate& c : candidates_) total += static_cast<double>(c.weight);
  const auto logprob = [total](float weight) {
    return ToLogprob(std::log(static_cast<double>(weight) / total));
  };
  int32_t rank = 1;
  float sampled = 0;
  for (const Candidate& c : candidates_) {
    if (c.id == token) sampled = c.weight;
  }
  for (const Candidate& c : candidates_) rank += c.weight > sampled ? 1 : 0;
  out->push_back({token, logprob(sampled)});
  for (int32_t i = 0; i < std::min(params.top_logprobs, vocab_size_); ++i) {
    const auto n = static_cast<size_t>(i);
    if (n < candidates_.size()) {
      out->push_back({candidates_[n].id, logprob(candidates_[n].weight)});
    }
  }
  return rank;
}

}  // namespace penstock
