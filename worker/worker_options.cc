#include "worker/worker_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>

#include "common/base/flag_help.h"
#include "common/base/status.h"

namespace penstock {
namespace {

constexpr char kVersionText[] = "penstock-worker 0.1.0\n";

// The text of flags whose value needs more than CLI11's conversions.
struct RawFlags {
  std::string listen = "127.0.0.1:50051";
  std::string max_model_len = "auto";
  std::string max_num_batched_tokens;
  std::string kv_cache_memory_bytes;
  std::string log_level = "info";
  double drain_timeout_s = 30;
};

const std::map<std::string, Backend> kBackends = {{"auto", Backend::kAuto},
                                                  {"cpu", Backend::kCpu},
                                                  {"fake", Backend::kFake},
                                                  {"cuda", Backend::kCuda}};
const std::map<std::string, LogLevel> kLogLevels = {{"debug", LogLevel::kDebug},
                                                    {"info", LogLevel::kInfo},
                                                    {"warning", LogLevel::kWarning},
                                                    {"error", LogLevel::kError}};

void AddModelFlags(CLI::App& app, WorkerOptions& options) {
  app.add_option("--model,model", options.model,
                 "Model: a directory, a GGUF file, or any name with --backend fake");
  app.add_option("--served-model-name", options.served_model_name,
                 "Name that clients use (default: the model's own name)");
  app.add_option("--load-format", options.load_format, "Format of the weights")
      ->check(CLI::IsMember({"auto", "safetensors", "gguf", "dummy"}));
  app.add_option("--dtype", options.dtype, "Type of weights and activations")
      ->check(CLI::IsMember({"auto", "bfloat16", "float16", "float32"}));
  app.add_option("--seed", options.seed, "Seed of --load-format dummy");
}

void AddEngineFlags(CLI::App& app, WorkerOptions& options, RawFlags& raw) {
  app.add_option("--backend", options.backend, "What computes: auto, cpu, cuda or fake")
      ->transform(CLI::CheckedTransformer(kBackends));
  app.add_option("--max-model-len", raw.max_model_len,
                 "Context in tokens (32k, 8192), or auto: what model and memory allow");
  app.add_option("--max-num-seqs", options.max_num_seqs, "Requests that run at once")
      ->check(CLI::Range(1, 65'535));
  app.add_option("--max-num-batched-tokens", raw.max_num_batched_tokens, "Tokens of one step");
  app.add_option("--block-size", options.block_size, "Tokens of one KV block")
      ->check(CLI::IsMember({8, 16, 32, 64, 128}));
  app.add_option("--kv-cache-memory-bytes", raw.kv_cache_memory_bytes,
                 "Memory of the KV cache (4g, 4G)");
  app.add_option("--gpu-memory-utilization", options.gpu_memory_utilization,
                 "Share of the GPU's memory to take at start (CUDA only)")
      ->check(CLI::Range(0.01, 1.0));
  app.add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", options.enable_prefix_caching,
               "Reuse the KV of equal prompt beginnings");
  app.add_option("--threads", options.threads, "Threads of the CPU backend (default: all cores)")
      ->check(CLI::Range(1, 1'024));
  app.add_option("--fake", options.fake,
                 "Behaviour of --backend fake, e.g. mode=echo,step-us=5000,vocab-size=49152");
}

void AddProcessFlags(CLI::App& app, WorkerOptions& options, RawFlags& raw) {
  app.add_option("--listen", raw.listen, "Address: HOST:PORT or unix:/PATH (mode 0600)");
  app.add_option("--drain-timeout", raw.drain_timeout_s,
                 "Seconds that running requests get to finish after SIGTERM");
  app.add_flag("--die-with-parent", options.die_with_parent, "Drain when the parent process ends");
  app.add_option("--log-level", raw.log_level, "debug, info, warning or error")
      ->check(CLI::IsMember(kLogLevels));
  app.set_config("--config", "", "TOML file with the same names");
}

void AddFlags(CLI::App& app, WorkerOptions& options, RawFlags& raw) {
  AddModelFlags(app, options);
  AddEngineFlags(app, options, raw);
  AddProcessFlags(app, options, raw);
}

// Every flag has an environment variable of the same name. They are put before the command line,
// and the last value of a flag wins, so that they lose to flags and win over the file.
std::vector<std::string> EnvironmentFlags(CLI::App& app) {
  std::vector<std::string> flags;
  for (CLI::Option* option : app.get_options([](CLI::Option*) { return true; })) {
    if (option->get_lnames().empty()) continue;
    const std::string& flag = option->get_lnames()[0];
    if (flag == "help" || flag == "version" || flag == "config") continue;
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    std::string name = "PENSTOCK_" + flag;
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
      return c == '-' ? '_' : static_cast<char>(std::toupper(c));
    });
    if (const char* value = std::getenv(name.c_str()); value != nullptr && *value != '\0') {
      flags.push_back("--" + flag + "=" + value);
    }
  }
  return flags;
}

std::vector<FlagInfo> FlagsOf(const CLI::App& app) {
  std::vector<FlagInfo> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      flags.push_back({.name = "--" + name,
                       .takes_value = option->get_items_expected_max() > 0,
                       .multiple = option->get_items_expected_max() > 1});
    }
  }
  return flags;
}

absl::StatusOr<int32_t> HumanInt32(std::string_view flag, const std::string& text) {
  if (text.empty()) return 0;
  ASSIGN_OR_RETURN(const int64_t value, ParseHumanInt(flag, text));
  if (value < 1 || value > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument("%s: %d is not between 1 and %d", flag, value,
                           std::numeric_limits<int32_t>::max());
  }
  return static_cast<int32_t>(value);
}

absl::Status Resolve(const RawFlags& raw, WorkerOptions* options) {
  if (options->model.empty()) {
    return InvalidArgument("--model: give a model directory or a GGUF file");
  }
  auto listen = ParseRpcAddress(raw.listen);
  if (!listen.ok()) return InvalidArgument("--listen: %s", std::string(listen.status().message()));
  options->listen = *std::move(listen);
  if (raw.max_model_len != "auto") {
    ASSIGN_OR_RETURN(options->max_model_len, HumanInt32("--max-model-len", raw.max_model_len));
  }
  ASSIGN_OR_RETURN(options->max_num_batched_tokens,
                   HumanInt32("--max-num-batched-tokens", raw.max_num_batched_tokens));
  if (!raw.kv_cache_memory_bytes.empty()) {
    ASSIGN_OR_RETURN(options->kv_cache_memory_bytes,
                     ParseHumanInt("--kv-cache-memory-bytes", raw.kv_cache_memory_bytes));
    if (options->kv_cache_memory_bytes < 1) {
      return InvalidArgument("--kv-cache-memory-bytes: %s is not above 0",
                             raw.kv_cache_memory_bytes);
    }
  }
  constexpr double kMaxDrainSeconds = 86'400;
  if (!(raw.drain_timeout_s >= 0 && raw.drain_timeout_s <= kMaxDrainSeconds)) {
    return InvalidArgument("--drain-timeout: %g is not between 0 and %g seconds",
                           raw.drain_timeout_s, kMaxDrainSeconds);
  }
  options->drain_timeout =
      std::chrono::milliseconds(static_cast<int64_t>(raw.drain_timeout_s * 1000));
  options->log_level = kLogLevels.at(raw.log_level);
  if (!options->fake.empty() && options->backend != Backend::kFake) {
    return InvalidArgument("--fake: only with --backend fake");
  }
  if (options->served_model_name.empty()) {
    const std::filesystem::path path(options->model);
    options->served_model_name =
        (path.has_filename() ? path.filename() : path.parent_path().filename()).string();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> ParseHumanInt(std::string_view flag, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view suffix(end, static_cast<size_t>(text.data() + text.size() - end));
  static constexpr std::string_view kDecimal = "kmgt", kBinary = "KMGT";
  double scale = 0;
  if (suffix.empty()) {
    scale = 1;
  } else if (suffix.size() == 1 && kDecimal.find(suffix[0]) != std::string_view::npos) {
    scale = std::pow(1000.0, static_cast<double>(kDecimal.find(suffix[0]) + 1));
  } else if (suffix.size() == 1 && kBinary.find(suffix[0]) != std::string_view::npos) {
    scale = std::pow(1024.0, static_cast<double>(kBinary.find(suffix[0]) + 1));
  }
  const double result = value * scale;
  const bool whole = result == std::floor(result);
  if (error != std::errc() || scale == 0 || !whole || !(result >= 0 && result <= 9e15)) {
    return InvalidArgument(
        "%s: '%s' is not a whole number such as 4096, 32k (thousands) or 32K "
        "(times 1024)",
        flag, text);
  }
  return static_cast<int64_t>(result);
}

std::vector<FlagInfo> WorkerFlags() {
  CLI::App app;
  WorkerOptions options;
  RawFlags raw;
  AddFlags(app, options, raw);
  return FlagsOf(app);
}

absl::StatusOr<ParsedWorkerOptions> ParseWorkerOptions(int argc, const char* const* argv) {
  CLI::App app("Serves one model on one device over gRPC.", "penstock-worker");
  WorkerOptions options;
  RawFlags raw;
  AddFlags(app, options, raw);
  app.set_version_flag("--version", kVersionText);
  app.allow_extras();
  std::vector<std::string> args = EnvironmentFlags(app);
  args.insert(args.end(), argv + 1, argv + argc);
  std::reverse(args.begin(), args.end());  // as CLI11 takes a vector
  try {
    app.parse(std::move(args));
  } catch (const CLI::CallForHelp&) {
    return ParsedWorkerOptions{.text = app.help()};
  } catch (const CLI::CallForVersion&) {
    return ParsedWorkerOptions{.text = kVersionText};
  } catch (const CLI::ParseError& error) {
    return InvalidArgument("%s", error.what());
  }
  if (const auto extras = app.remaining(); !extras.empty()) {
    return UnknownFlagError(extras[0], FlagsOf(app));
  }
  RETURN_IF_ERROR(Resolve(raw, &options));
  return ParsedWorkerOptions{.options = std::move(options)};
}

}  // namespace penstock
