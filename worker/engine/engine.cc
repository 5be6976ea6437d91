#include "worker/engine/engine.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <thread>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"
#include "worker/engine/engine_loop.h"
#include "worker/engine/inbox.h"
#include "worker/engine/request_check.h"

namespace penstock {
namespace {

constexpr std::chrono::milliseconds kIdleTurn{100};  // how old a healthy idle engine's stamp gets
constexpr int kRunnerFailedExitCode = 70;

int64_t SteadyNowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void ExitOnFatal(const absl::Status& status) {
  LogError("the runner failed, the process ends: %s", status.ToString());
  std::_Exit(kRunnerFailedExitCode);
}

absl::Status SetLimit(const char* name, int32_t runner_value, int32_t* option) {
  if (*option == 0) *option = runner_value;
  if (*option < 1 || *option > runner_value) {
    return InvalidArgument("%s: %d is not between 1 and %d, what this runner was set up for", name,
                           *option, runner_value);
  }
  return absl::OkStatus();
}

// A request of full length must fit the KV cache alone, else it could never finish.
absl::Status CheckKvFits(const RunnerInfo& info, const EngineOptions& options, int32_t chunk) {
  if (info.kv_groups.empty() || info.kv_groups.size() > kMaxKvGroups) {
    return InvalidArgument("kv_groups: %d groups, but 1 to %d are supported", info.kv_groups.size(),
                           kMaxKvGroups);
  }
  for (const KvGroupInfo& group : info.kv_groups) {
    if (group.num_blocks < 2) {
      return InvalidArgument("KV cache: %d blocks are too few", group.num_blocks);
    }
  }
  const KvCache kv(info.kv_groups, info.block_size, chunk * options.steps_in_flight);
  for (int g = 0; g < kv.num_groups(); ++g) {
    const int32_t needed = kv.PeakBlocks(g, options.max_model_len);
    if (needed <= kv.pool(g).num_blocks()) continue;
    return InvalidArgument(
        "max_model_len: %d tokens need %d KV blocks, but only %d of %d tokens fit the memory; "
        "lower "
        "max_model_len or give the KV cache more memory",
        options.max_model_len, needed, kv.pool(g).num_blocks(), info.block_size);
  }
  return absl::OkStatus();
}

absl::StatusOr<EngineLimits> Complete(const RunnerInfo& info, EngineOptions* options) {
  RETURN_IF_ERROR(SetLimit("max_model_len", info.max_model_len, &options->max_model_len));
  RETURN_IF_ERROR(SetLimit("max_num_seqs", info.max_num_seqs, &options->max_num_seqs));
  RETURN_IF_ERROR(SetLimit("max_num_batched_tokens", info.max_num_batched_tokens,
                           &options->max_num_batched_tokens));
  if (options->steps_in_flight < 1 || options->steps_in_flight > kMaxStepsInFlight) {
    return InvalidArgument("steps_in_flight: %d is not between 1 and %d", options->steps_in_flight,
                           kMaxStepsInFlight);
  }
  if (options->max_queued_requests < 0) {
    return InvalidArgument("max_queued_requests: %d must not be negative",
                           options->max_queued_requests);
  }
  const int32_t room = options->max_num_batched_tokens - options->max_num_seqs;
  if (room < info.block_size) {
    return InvalidArgument(
        "max_num_batched_tokens: %d must be at least max_num_seqs (%d) and one block (%d) "
        "together, "
        "so that prompts progress beside running streams; raise it or lower max_num_seqs",
        options->max_num_batched_tokens, options->max_num_seqs, info.block_size);
  }
  const int32_t chunk = PrefillChunkSize(info.chunk_times, info.block_size, room);
  RETURN_IF_ERROR(CheckKvFits(info, *options, chunk));
  if (!options->now_ns) options->now_ns = SteadyNowNs;
  if (!options->on_fatal) options->on_fatal = ExitOnFatal;
  return EngineLimits{.max_model_len = options->max_model_len,
                      .max_num_seqs = options->max_num_seqs,
                      .max_num_batched_tokens = options->max_num_batched_tokens,
                      .prefill_chunk = chunk,
                      .block_size = info.block_size,
                      .vocab_size = info.vocab_size,
                      .max_queued_requests = options->max_queued_requests};
}

}  // namespace

class Engine::Impl {
 public:
  Impl(EngineOptions options, EngineLimits limits, std::unique_ptr<ModelRunner> runner)
      : options_(std::move(options)),
        limits_(limits),
        runner_(std::move(runner)),
        inbox_(static_cast<size_t>(limits.max_num_seqs) +
                   static_cast<size_t>(limits.max_queued_requests),
               options_.max_queued_tokens),
        loop_(options_, limits_, *runner_, inbox_),
        thread_([this] { Run(); }) {}

  ~Impl() {
    inbox_.Stop();
    thread_.join();
  }

  const EngineOptions options_;
  const EngineLimits limits_;
  const std::unique_ptr<ModelRunner> runner_;
  Inbox inbox_;

 private:
  void Run() {
    absl::Status status;
    try {
      status = Loop();
    } catch (const std::exception& e) {
      status = Internal("engine thread: %s", e.what());
    }
    if (!status.ok()) options_.on_fatal(status);
  }

  absl::Status Loop() {
    while (!inbox_.stopped()) {
      ASSIGN_OR_RETURN(const bool worked, loop_.Turn());
      if (!worked) inbox_.Wait(kIdleTurn);
    }
    return loop_.CollectAll();
  }

  EngineLoop loop_;
  std::thread thread_;  // last: it uses everything above
};

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(EngineOptions options,
                                                       std::unique_ptr<ModelRunner> runner) {
  ASSIGN_OR_RETURN(const EngineLimits limits, Complete(runner->info(), &options));
  return std::unique_ptr<Engine>(
      new Engine(std::make_unique<Impl>(std::move(options), limits, std::move(runner))));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

const RunnerInfo& Engine::runner_info() const { return impl_->runner_->info(); }
const EngineLimits& Engine::limits() const { return impl_->limits_; }

uint32_t Engine::RegisterSession(std::shared_ptr<EventSink> sink) {
  return impl_->inbox_.Open(std::move(sink));
}
void Engine::CloseSession(uint32_t session) { impl_->inbox_.Close(session); }

absl::Status Engine::Submit(EngineRequest request) {
  const EngineOptions& options = impl_->options_;
  ASSIGN_OR_RETURN(
      std::unique_ptr<Sequence> sequence,
      MakeSequence(std::move(request), impl_->limits_,
                   options.enable_prefix_caching ? &options.model_fingerprint : nullptr));
  sequence->arrival_ns = options.now_ns();
  return impl_->inbox_.Submit(std::move(sequence));
}

void Engine::Cancel(uint32_t session, RequestId id) { impl_->inbox_.Cancel(session, id); }
EngineStats Engine::Stats() const { return impl_->inbox_.Stats(); }
void Engine::StartDrain() { impl_->inbox_.StartDrain(); }
bool Engine::WaitIdle(std::chrono::nanoseconds timeout) { return impl_->inbox_.WaitIdle(timeout); }
void Engine::AbortAll(absl::Status status) { impl_->inbox_.Abort(std::move(status)); }

}  // namespace penstock
