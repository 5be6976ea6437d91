#include "router/router_process.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <memory>
#include <utility>

#include "common/base/check.h"
#include "common/base/exit_codes.h"
#include "common/base/log.h"
#include "common/base/notify.h"
#include "common/base/status.h"
#include "router/api/api_server.h"
#include "router/model_text_adapter.h"
#include "router/pool/worker_pool.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

// How often the main thread looks for a model to load, or for the end of a drain.
constexpr int kTickMs = 100;
// What error events of the last streams get to leave the machine.
constexpr std::chrono::milliseconds kLastWrites{500};

absl::StatusOr<std::string> ReadTemplateFile(const std::string& path) {
  if (path.empty()) return std::string();
  std::ifstream file(path, std::ios::binary);
  if (!file) return InvalidArgument("--chat-template: cannot read the file %s", path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// True when a signal came within the time.
bool SignalWithin(int signal_fd, int timeout_ms) {
  pollfd fd = {.fd = signal_fd, .events = POLLIN};
  if (poll(&fd, 1, timeout_ms) <= 0) return false;
  signalfd_siginfo info;
  return read(signal_fd, &info, sizeof info) > 0;
}

int MakeSignalFd() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  const int fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  CHECK(fd >= 0);
  return fd;
}

class RouterProcess {
 public:
  RouterProcess(const RouterOptions& options, std::string notify_socket)
      : options_(options), notify_socket_(std::move(notify_socket)), signals_(MakeSignalFd()) {}
  ~RouterProcess() { close(signals_); }

  int Run() {
    if (const int code = Start(); code != kExitOk) return code;
    while (!SignalWithin(signals_, kTickMs)) Tick();
    return DrainAndStop();
  }

 private:
  int Start() {
    absl::StatusOr<std::string> chat_template = ReadTemplateFile(options_.chat_template);
    if (!chat_template.ok()) return Refuse(chat_template.status(), kExitUsage);
    chat_template_ = *std::move(chat_template);
    const absl::StatusOr<BalancePolicy> policy = ParseBalancePolicy(options_.balance_policy);
    if (!policy.ok()) return Refuse(policy.status(), kExitUsage);
    // Before any worker is called: a second router on the port must not disturb the first.
    auto http = HttpServer::Create(options_.http);
    if (!http.ok()) return Refuse(http.status(), kExitBind);
    http_ = *std::move(http);
    auto pool = CreateWorkerPool({.addresses = options_.workers, .policy = *policy});
    if (!pool.ok()) return Refuse(pool.status(), kExitUsage);
    pool_ = *std::move(pool);
    api_ = std::make_unique<ApiServer>(options_.api, *pool_);
    http_->Start(api_->hooks());
    const std::string where =
        options_.http.uds.empty()
            ? absl::StrFormat("http://%s:%d", options_.http.host, http_->port())
            : "unix:" + options_.http.uds;
    LogInfo("listening on=%s workers=%d threads=%d keys=%d", where, options_.workers.size(),
            options_.http.threads, options_.api.api_keys.size());
    if (options_.api.api_keys.empty() && !options_.api.metrics_open) {
      LogWarning("no --api-key: everyone who reaches %s may use it", where);
    }
    NotifySupervisor(notify_socket_, "STATUS=waiting for a worker");
    return kExitOk;
  }

  int Refuse(const absl::Status& status, int code) {
    const std::string message(status.message());
    LogError("cannot start: %s", message);
    NotifySupervisor(notify_socket_, "STATUS=" + message);
    return code;
  }

  // Loads the text side when there is a model, again when the workers' model changed.
  void Tick() {
    const std::shared_ptr<const ServedModel> served = pool_->model();
    if (served != nullptr && (model_ == nullptr || model_->served != served)) LoadText(served);
    if (!ready_said_ && model_ != nullptr && pool_->ready()) {
      ready_said_ = true;
      LogInfo("ready model=%s max_model_len=%d", model_->served->name,
              model_->served->max_model_len);
      NotifySupervisor(notify_socket_, "READY=1\nSTATUS=serving");
    }
  }

  void LoadText(const std::shared_ptr<const ServedModel>& served) {
    if (failed_ == served) return;
    if (model_ != nullptr && model_->served->fingerprint == served->fingerprint) {
      // Only the workers' number changed.
      return SetModel(served, model_->text);
    }
    const Clock::time_point begin = Clock::now();
    auto text = LoadServedText(
        *served, {.chat_template = chat_template_,
                  .trust_user_special_tokens = options_.api.trust_user_special_tokens});
    if (!text.ok()) {
      failed_ = served;
      const std::string message(text.status().message());
      LogError("cannot load the text side of %s: %s", served->name, message);
      return api_->SetModelError(message);
    }
    LogInfo("text loaded model=%s seconds=%.2f", served->name,
            std::chrono::duration<double>(Clock::now() - begin).count());
    SetModel(served, *std::move(text));
  }

  void SetModel(std::shared_ptr<const ServedModel> served, std::shared_ptr<const ServedText> text) {
    model_ = std::make_shared<const LoadedModel>(LoadedModel{std::move(served), std::move(text)});
    api_->SetModel(model_);
  }

  int DrainAndStop() {
    NotifySupervisor(notify_socket_, "STOPPING=1");
    LogInfo("draining running=%d timeout_s=%.0f", api_->in_flight(),
            static_cast<double>(options_.shutdown_timeout.count()) / 1000);
    api_->BeginDrain();
    const Clock::time_point deadline = Clock::now() + options_.shutdown_timeout;
    bool now = false;
    while (!now && api_->in_flight() > 0 && Clock::now() < deadline) {
      now = SignalWithin(signals_, kTickMs);
    }
    if (api_->in_flight() > 0) {
      LogWarning("ending %d requests: %s", api_->in_flight(),
                 now ? "second signal" : "the shutdown timeout passed");
      api_->FailAll({.status = 503,
                     .message = "The server is shutting down.",
                     .code = "draining",
                     .retry_after_s = 1});
      const Clock::time_point last = Clock::now() + kLastWrites;
      while (!now && api_->in_flight() > 0 && Clock::now() < last) {
        now = SignalWithin(signals_, 10);
      }
    }
    if (now) _exit(kExitOk);
    http_->StopKeepAlive();
    api_->StopText();
    http_->Stop();
    pool_.reset();
    LogInfo("stopped");
    return kExitOk;
  }

  const RouterOptions& options_;
  const std::string notify_socket_;
  const int signals_;
  std::string chat_template_;
  // In this order: requests that still exist at the end hold on to the pool and the io threads.
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<ApiServer> api_;
  std::shared_ptr<const LoadedModel> model_;
  std::shared_ptr<const ServedModel> failed_;
  bool ready_said_ = false;
};

}  // namespace

int RunRouter(const RouterOptions& options, const std::string& notify_socket) {
  return RouterProcess(options, notify_socket).Run();
}

}  // namespace penstock
