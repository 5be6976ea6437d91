#include "worker/worker_process.h"

#include <grpcpp/server.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "common/base/exit_codes.h"
#include "common/base/log.h"
#include "common/base/notify.h"
#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "worker/backend.h"
#include "worker/service/worker_service.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLoadingExtension{30};
constexpr std::chrono::seconds kLastWritesTimeout{2};

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string HumanBytes(int64_t bytes) {
  if (bytes >= int64_t{1} << 30) return absl::StrFormat("%.2f GiB", bytes / double(1 << 30));
  return absl::StrFormat("%.1f MiB", bytes / double(1 << 20));
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) { CHECK(fd >= 0); }
  ~FileDescriptor() { close(fd_); }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

int MakeSignalFd() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

// Tells the supervisor that loading goes on, for as long as it takes.
class LoadingNotice {
 public:
  explicit LoadingNotice(const std::string& socket) : done_(eventfd(0, EFD_CLOEXEC)) {
    thread_ = std::thread([this, socket] {
      const std::string message =
          absl::StrFormat("STATUS=loading the model\nEXTEND_TIMEOUT_USEC=%d",
                          std::chrono::microseconds(kLoadingExtension).count());
      pollfd fd = {.fd = done_.get(), .events = POLLIN};
      do {
        NotifySupervisor(socket, message);
      } while (poll(&fd, 1, 5'000) == 0);
    });
  }
  ~LoadingNotice() {
    eventfd_write(done_.get(), 1);
    thread_.join();
  }

 private:
  FileDescriptor done_;
  std::thread thread_;
};

// Waits for a signal or for `event`. True = a signal.
bool WaitForSignal(int signal_fd, int event_fd) {
  for (;;) {
    pollfd fds[2] = {{.fd = signal_fd, .events = POLLIN}, {.fd = event_fd, .events = POLLIN}};
    if (poll(fds, 2, -1) <= 0) continue;
    signalfd_siginfo info;
    if ((fds[0].revents & POLLIN) != 0 && read(signal_fd, &info, sizeof(info)) > 0) return true;
    if ((fds[1].revents & POLLIN) != 0) return false;
  }
}

EngineOptions MakeEngineOptions(const WorkerOptions& options, const WorkerIdentity& identity) {
  EngineOptions engine;
  engine.model_fingerprint = identity.fingerprint;
  engine.max_model_len = options.max_model_len;
  engine.max_num_seqs = options.max_num_seqs;
  engine.max_num_batched_tokens = options.max_num_batched_tokens;
  engine.enable_prefix_caching = options.enable_prefix_caching;
  // Without a Finish to anyone: the broken session tells the routers to resume elsewhere.
  engine.on_fatal = [](const absl::Status& status) {
    LogError("the runner failed, ending: %s", std::string(status.message()));
    _exit(kExitFailure);
  };
  return engine;
}

void ReportModel(const WorkerIdentity& identity, const Engine& engine, double seconds) {
  const RunnerInfo& runner = engine.runner_info();
  LogInfo(
      "model loaded name=%s format=\"%s\" device=\"%s\" weights=\"%s\" vocabulary=%d "
      "fingerprint=%s seconds=%.2f",
      identity.name, identity.format, runner.device, HumanBytes(runner.weight_bytes),
      runner.vocab_size, identity.fingerprint.substr(0, 16), seconds);
  const EngineLimits& limits = engine.limits();
  for (const KvGroupInfo& group : runner.kv_groups) {
    const int64_t tokens = int64_t{group.num_blocks - 1} * limits.block_size;
    LogInfo(
        "kv cache layers=%d window=%d tokens=%d blocks=%d block_size=%d memory=\"%s\" "
        "max_model_len=%d full_length_requests=%.1f",
        group.num_layers, group.window, tokens, group.num_blocks - 1, limits.block_size,
        HumanBytes(group.bytes_per_block * group.num_blocks), limits.max_model_len,
        static_cast<double>(tokens) / limits.max_model_len);
  }
  LogInfo(
      "limits max_num_seqs=%d max_num_batched_tokens=%d prefill_chunk=%d "
      "max_queued_requests=%d",
      limits.max_num_seqs, limits.max_num_batched_tokens, limits.prefill_chunk,
      limits.max_queued_requests);
}

// A message that begins with a flag's name is about that flag, everything else about the model.
int ExitCodeOf(const absl::Status& status) {
  const bool names_flag = status.message().substr(0, 2) == "--";
  return absl::IsInvalidArgument(status) && names_flag ? kExitUsage : kExitModel;
}

class Worker {
 public:
  Worker(const WorkerOptions& options, const std::string& notify_socket)
      : options_(options), notify_socket_(notify_socket) {}

  int Run() {
    if (const int code = Start(); code != kExitOk) return code;
    if (WaitForSignal(signals_.get(), drain_asked_.get())) {
      LogInfo("signal received, draining");
    } else {
      LogInfo("drain requested");
    }
    return DrainAndStop();
  }

 private:
  int Start() {
    absl::StatusOr<LoadedModel> loaded = Load();
    if (!loaded.ok()) return Refuse(loaded.status(), ExitCodeOf(loaded.status()));
    const double load_seconds = Since(started_);
    const Clock::time_point engine_start = Clock::now();
    const EngineOptions engine_options = MakeEngineOptions(options_, loaded->identity);
    auto engine = Engine::Create(engine_options, std::move(loaded->runner));
    if (!engine.ok()) {
      // Its InvalidArgument names an option that does not fit this model.
      return Refuse(engine.status(),
                    absl::IsInvalidArgument(engine.status()) ? kExitUsage : kExitModel);
    }
    engine_ = *std::move(engine);
    ReportModel(loaded->identity, *engine_, load_seconds);
    const double engine_seconds = Since(engine_start);
    const Clock::time_point server_start = Clock::now();
    service_ = std::make_unique<WorkerService>(
        WorkerServiceOptions{.identity = std::move(loaded->identity),
                             .text = std::move(loaded->text),
                             .on_drain = [this](int64_t ms) { AskToDrain(ms); }},
        *engine_);
    auto server = StartServer(options_.listen, {service_->grpc_service()});
    if (!server.ok()) return Refuse(server.status(), kExitBind);
    server_ = *std::move(server);
    SetServing(*server_.server, true);
    LogInfo(
        "ready listen=%s seconds=%.2f model_seconds=%.2f engine_seconds=%.2f "
        "server_seconds=%.2f",
        server_.address.ToString(), Since(started_), load_seconds, engine_seconds,
        Since(server_start));
    NotifySupervisor(notify_socket_, "READY=1\nSTATUS=serving");
    return kExitOk;
  }

  absl::StatusOr<LoadedModel> Load() {
    LogInfo("loading model=%s", options_.model);
    const LoadingNotice notice(notify_socket_);
    return LoadModel(options_);
  }

  int Refuse(const absl::Status& status, int code) {
    LogError("cannot start: %s", std::string(status.message()));
    NotifySupervisor(notify_socket_, absl::StrFormat("STATUS=%s", std::string(status.message())));
    return code;
  }

  void AskToDrain(int64_t deadline_ms) {
    if (deadline_ms > 0) drain_ms_ = deadline_ms;
    eventfd_write(drain_asked_.get(), 1);
  }

  int DrainAndStop() {
    NotifySupervisor(notify_socket_, "STOPPING=1");
    service_->SetDraining();
    SetServing(*server_.server, false);
    engine_->StartDrain();
    FileDescriptor idle(eventfd(0, EFD_CLOEXEC));
    bool finished = false;
    const std::chrono::milliseconds timeout(drain_ms_.load() > 0 ? drain_ms_.load()
                                                                 : options_.drain_timeout.count());
    std::thread waiter([this, timeout, &idle, &finished] {
      finished = engine_->WaitIdle(timeout);
      eventfd_write(idle.get(), 1);
    });
    if (WaitForSignal(signals_.get(), idle.get())) {
      LogWarning("second signal, ending at once");
      _exit(kExitFailure);
    }
    waiter.join();
    if (!finished) {
      const EngineStats stats = engine_->Stats();
      LogWarning("drain timeout, cancelling running=%d waiting=%d", stats.running, stats.waiting);
      engine_->AbortAll(absl::UnavailableError("the worker is shutting down; try again"));
    }
    const bool idle_now = finished || engine_->WaitIdle(kLastWritesTimeout);
    service_->FinishStreams();
    server_.server->Shutdown(std::chrono::system_clock::now() + kLastWritesTimeout);
    if (!idle_now) {
      LogError("the engine hangs, ending without it");
      _exit(kExitFailure);
    }
    LogInfo("drained complete=%d", finished);
    return kExitOk;
  }

  const WorkerOptions& options_;
  const std::string& notify_socket_;
  const Clock::time_point started_ = Clock::now();
  FileDescriptor signals_{MakeSignalFd()};
  FileDescriptor drain_asked_{eventfd(0, EFD_CLOEXEC)};
  std::atomic<int64_t> drain_ms_ = 0;
  // In this order: the server ends before the service, the service before the engine.
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<WorkerService> service_;
  RunningServer server_;
};

}  // namespace

int RunWorker(const WorkerOptions& options, const std::string& notify_socket) {
  return Worker(options, notify_socket).Run();
}

}  // namespace penstock
