#include "deploy/serve_command.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "common/base/exit_codes.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "deploy/serve_arguments.h"
#include "deploy/serve_config.h"
#include "deploy/supervisor.h"
#include "router/router_options.h"
#include "worker/model/hub.h"
#include "worker/worker_options.h"

namespace penstock {
namespace {

constexpr char kHelp[] = R"(Serves a model over the OpenAI API: one router, one or more workers.

  penstock serve MODEL [flags]

MODEL is a folder (config.json, safetensors), a GGUF file, or a hub id (org/name, org/name:Q4_K_M).

  --replicas N           workers, each with the whole model (default 1)
  --revision REV         branch, tag or commit of a hub id
  --host, --port         where to listen (default 127.0.0.1:8000)
  --api-key KEY...       or VLLM_API_KEY; without one the API is open
  --config FILE          TOML file with the names of these flags

All flags of penstock-router and penstock-worker are taken too, and go where they belong:
  penstock-router --help
  penstock-worker --help
)";

std::vector<const char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<const char*> pointers;
  for (const std::string& text : strings) pointers.push_back(text.c_str());
  return pointers;
}

// A folder of this process's own: systemd's RUNTIME_DIRECTORY, else a fresh one (mode 0700).
absl::StatusOr<std::string> MakeRuntimeDir() {
  if (const char* given = std::getenv("RUNTIME_DIRECTORY"); given != nullptr && *given != '\0') {
    return std::string(given);
  }
  const char* base = std::getenv("XDG_RUNTIME_DIR");
  for (const std::string& parent :
       {std::string(base == nullptr ? "" : base), std::string("/tmp")}) {
    if (parent.empty()) continue;
    std::string path = parent + "/penstock-XXXXXX";
    if (mkdtemp(path.data()) != nullptr) return path;
  }
  return Internal("cannot make a runtime directory in XDG_RUNTIME_DIR or /tmp");
}

struct ServePlan {
  ModelLocation model;
  std::vector<std::string> router;  // arguments, without the program
  std::vector<std::vector<std::string>> workers;
};

// The whole command lines, checked with the parsers that the children use themselves.
absl::StatusOr<ServePlan> MakePlan(const ServeArguments& arguments, const std::string& runtime_dir,
                                   ModelLocation model) {
  ServePlan plan = {.model = std::move(model)};
  plan.router = arguments.router;
  if (LastValue(arguments.router, "--served-model-name", "").empty()) {
    plan.router.push_back("--served-model-name=" + plan.model.name);
  }
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  for (int i = 0; i < arguments.replicas; ++i) {
    const std::string address = absl::StrFormat("unix:%s/worker-%d.sock", runtime_dir, i);
    std::vector<std::string> worker = {"--model=" + plan.model.path, "--listen=" + address,
                                       "--die-with-parent"};
    worker.insert(worker.end(), arguments.worker.begin(), arguments.worker.end());
    if (LastValue(worker, "--served-model-name", "").empty()) {
      worker.push_back("--served-model-name=" + plan.model.name);
    }
    if (arguments.replicas > 1 && LastValue(worker, "--threads", "").empty()) {
      worker.push_back(absl::StrFormat("--threads=%d", std::max(1, cores / arguments.replicas)));
    }
    plan.router.push_back("--worker=" + address);
    plan.workers.push_back(std::move(worker));
  }
  std::vector<std::string> checked = plan.workers[0];
  checked.insert(checked.begin(), "penstock-worker");
  RETURN_IF_ERROR(
      ParseWorkerOptions(static_cast<int>(checked.size()), Pointers(checked).data()).status());
  checked = plan.router;
  checked.insert(checked.begin(), "penstock-router");
  RETURN_IF_ERROR(
      ParseRouterOptions(static_cast<int>(checked.size()), Pointers(checked).data()).status());
  return plan;
}

// The fake backend serves no files, so any name will do for it.
absl::StatusOr<ModelLocation> FetchModel(const ServeArguments& arguments) {
  if (LastValue(arguments.worker, "--backend", "") == "fake" &&
      !std::filesystem::exists(arguments.model)) {
    return ModelLocation{.path = arguments.model, .name = arguments.model, .commit = ""};
  }
  ASSIGN_OR_RETURN(HubOptions options,
                   HubOptionsFromEnvironment([](const char* name) { return std::getenv(name); }));
  options.terminal = isatty(STDERR_FILENO) == 1;
  options.output = [](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); };
  return ResolveModel(arguments.model, arguments.revision, options);
}

std::string BaseUrl(const std::vector<std::string>& router) {
  const std::string uds = LastValue(router, "--uds", "");
  if (!uds.empty()) return "unix:" + uds;
  std::string host = LastValue(router, "--host", "127.0.0.1");
  if (host == "0.0.0.0" || host == "::") host = "127.0.0.1";
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  return absl::StrFormat("http://%s:%s", host, LastValue(router, "--port", "8000"));
}

void PrintReady(const ServePlan& plan) {
  const std::string url = BaseUrl(plan.router);
  std::string model = plan.model.name;
  for (const std::string& argument : plan.router) {
    constexpr std::string_view kFlag = "--served-model-name=";
    if (!argument.starts_with(kFlag)) continue;
    model = argument.substr(kFlag.size());  // the first is the one that answers show
    break;
  }
  const bool keyed =
      std::getenv("VLLM_API_KEY") != nullptr || !LastValue(plan.router, "--api-key", "").empty();
  std::printf(
      "\nPenstock is ready: %s/v1 serves %s\n\nTry:\n  curl %s/v1/chat/completions"
      " -H 'Content-Type: application/json'%s \\\n    -d '{\"model\":\"%s\",\"stream\":true,"
      "\"messages\":[{\"role\":\"user\",\"content\":\"What is a penstock?\"}]}'\n\n",
      url.c_str(), model.c_str(), url.c_str(),
      keyed ? " -H \"Authorization: Bearer $VLLM_API_KEY\"" : "", model.c_str());
  std::fflush(stdout);
}

absl::StatusOr<int> Supervise(const std::string& program, const ServePlan& plan,
                              const std::string& runtime_dir) {
  std::error_code error;
  std::filesystem::path self = std::filesystem::canonical("/proc/self/exe", error);
  if (error) self = program;
  const char* notify = std::getenv("NOTIFY_SOCKET");
  ASSIGN_OR_RETURN(const std::unique_ptr<Supervisor> supervisor,
                   Supervisor::Create({.runtime_dir = runtime_dir,
                                       .parent_notify_socket = notify == nullptr ? "" : notify,
                                       .on_ready = [&plan] { PrintReady(plan); }}));
  for (size_t i = 0; i < plan.workers.size(); ++i) {
    std::vector<std::string> argv = {self.parent_path() / "penstock-worker"};
    argv.insert(argv.end(), plan.workers[i].begin(), plan.workers[i].end());
    supervisor->Add(
        {.name = absl::StrFormat("worker:%d", i), .argv = std::move(argv), .stop_stage = 1});
  }
  std::vector<std::string> argv = {self.parent_path() / "penstock-router"};
  argv.insert(argv.end(), plan.router.begin(), plan.router.end());
  supervisor->Add({.name = "router", .argv = std::move(argv), .stop_stage = 0});
  return supervisor->Run();
}

int Fail(int code, const absl::Status& status) {
  std::fprintf(stderr, "penstock serve: %s\n", std::string(status.message()).c_str());
  return code;
}

}  // namespace

int RunServeCommand(const std::string& program, std::span<const std::string> typed) {
  const std::vector<FlagInfo> router_flags = RouterFlags();
  const std::vector<FlagInfo> worker_flags = WorkerFlags();
  const auto with_config = ExpandConfig(typed, router_flags, worker_flags);
  if (!with_config.ok()) return Fail(kExitUsage, with_config.status());
  const auto arguments = SplitServeArguments(*with_config, router_flags, worker_flags);
  if (!arguments.ok()) return Fail(kExitUsage, arguments.status());
  if (arguments->help) {
    std::fputs(kHelp, stdout);
    return kExitOk;
  }
  InitLog("penstock");
  const auto runtime_dir = MakeRuntimeDir();
  if (!runtime_dir.ok()) return Fail(kExitFailure, runtime_dir.status());
  const auto cleanup = [&] {
    std::error_code ignored;
    if (std::getenv("RUNTIME_DIRECTORY") == nullptr) {
      std::filesystem::remove_all(*runtime_dir, ignored);
    }
  };
  int code = kExitModel;
  if (auto model = FetchModel(*arguments); !model.ok()) {
    code = Fail(kExitModel, model.status());
  } else if (auto plan = MakePlan(*arguments, *runtime_dir, *std::move(model)); !plan.ok()) {
    code = Fail(kExitUsage, plan.status());
  } else {
    const auto ended = Supervise(program, *plan, *runtime_dir);
    code = ended.ok() ? *ended : Fail(kExitFailure, ended.status());
  }
  cleanup();
  return code;
}

}  // namespace penstock
