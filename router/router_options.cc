#include "router/router_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "common/base/status.h"
#include "common/json/json.h"

namespace penstock {
namespace {

constexpr char kVersion[] = "0.1.0";
constexpr char kVersionText[] = "penstock-router 0.1.0\n";

// The text of flags whose value needs more than CLI11's conversions.
struct RawFlags {
  std::string overflow = "clamp";
  std::string generation_config = "auto";
  std::string logprobs_mode = "raw_logprobs";
  std::string vllm_metrics = "on";
  std::string metrics_auth = "auto";
  std::string log_level = "info";
  std::vector<std::string> origins, methods, headers;
  std::string override_generation_config;
  std::string chat_template_kwargs;
  double sse_keep_alive_s = 15;
  double keep_alive_s = 75;
  double write_timeout_s = 60;
  double request_timeout_s = 0;
  double shutdown_timeout_s = 30;
};

const std::map<std::string, LogLevel> kLogLevels = {{"debug", LogLevel::kDebug},
                                                    {"info", LogLevel::kInfo},
                                                    {"warning", LogLevel::kWarning},
                                                    {"error", LogLevel::kError}};

// Seconds of timeouts: up to a day.
const CLI::Range kSeconds(0.0, 86'400.0);

void AddListenFlags(CLI::App& app, RouterOptions& options, RawFlags& raw) {
  app.add_option("--host", options.http.host, "Address to listen on (0.0.0.0: every interface)");
  app.add_option("--port", options.http.port, "TCP port; 0 = any free one")
      ->check(CLI::Range(0, 65'535));
  app.add_option("--uds", options.http.uds, "Listen on this Unix socket instead of TCP");
  app.add_option("--threads", options.http.threads, "Threads that serve connections")
      ->check(CLI::Range(1, 255));
  app.add_option("--text-threads", options.api.text_threads,
                 "Threads that parse and tokenise long prompts")
      ->check(CLI::Range(1, 255));
  app.add_option("--root-path", options.api.root_path, "Path prefix of a proxy in front (/llm)");
  app.add_option("--max-body-size", options.api.max_body_bytes, "Largest request body, in bytes")
      ->check(CLI::Range(1024, 1 << 30));
  app.add_option("--keep-alive-timeout", raw.keep_alive_s,
                 "Seconds that an idle connection stays open")
      ->check(kSeconds);
  app.add_option("--write-timeout", raw.write_timeout_s,
                 "Seconds without a byte taken after which a client counts as gone")
      ->check(kSeconds);
  app.add_option("--sse-keep-alive-interval", raw.sse_keep_alive_s,
                 "Seconds of silence in a stream before a comment line; 0 = never")
      ->check(kSeconds);
}

void AddAccessFlags(CLI::App& app, RouterOptions& options, RawFlags& raw) {
  app.add_option("--api-key", options.api.api_keys,
                 "Key that clients must send (several: repeat it); or VLLM_API_KEY");
  app.add_option("--metrics-auth", raw.metrics_auth,
                 "Whether /metrics needs a key: on, off, or auto (off on a loopback address)")
      ->check(CLI::IsMember({"auto", "on", "off"}));
  app.add_option("--allowed-origins", raw.origins,
                 "Browser origins that may call (\"*\" = any; a JSON list works too)");
  app.add_option("--allowed-methods", raw.methods, "Methods that browsers may use");
  app.add_option("--allowed-headers", raw.headers, "Headers that browsers may send");
  app.add_flag("--allow-credentials", options.api.cors.allow_credentials,
               "Browsers may send credentials");
}

void AddModelFlags(CLI::App& app, RouterOptions& options, RawFlags& raw) {
  app.add_option("--worker", options.workers,
                 "Worker address, HOST:PORT or unix:/PATH (several: repeat it)");
  app.add_option("--balance", options.balance_policy, "Which worker gets a request")
      ->check(CLI::IsMember({"power_of_two", "round_robin"}));
  app.add_option("--served-model-name", options.api.served_names,
                 "Names that clients may use; the first is shown in answers and metrics");
  app.add_option("--chat-template", options.chat_template,
                 "File with a Jinja chat template to use instead of the model's");
  app.add_option("--generation-config", raw.generation_config,
                 "Sampling defaults: auto (the model's) or vllm (neutral)")
      ->check(CLI::IsMember({"auto", "vllm"}));
  app.add_option("--override-generation-config", raw.override_generation_config,
                 "Sampling defaults that win over the model's, as JSON: {\"temperature\": 0.5}");
  app.add_option("--default-chat-template-kwargs", raw.chat_template_kwargs,
                 "Template variables of requests that do not set them, as JSON: "
                 "{\"enable_thinking\": false}");
  app.add_flag("--trust-request-chat-template", options.api.trust_request_chat_template,
               "Requests may bring a chat template of their own");
  app.add_option("--max-logprobs", options.api.max_logprobs,
                 "Most log probabilities per token; -1 = the whole vocabulary")
      ->check(CLI::Range(-1, 1 << 20));
  app.add_option("--logprobs-mode", raw.logprobs_mode, "raw_logprobs or processed_logprobs")
      ->check(CLI::IsMember({"raw_logprobs", "processed_logprobs"}));
  app.add_option("--overflow", raw.overflow,
                 "A max_tokens that does not fit the context: clamp or reject")
      ->check(CLI::IsMember({"clamp", "reject"}));
  app.add_flag("--trust-user-special-tokens", options.api.trust_user_special_tokens,
               "Control tokens typed in chat messages act as such");
}

void AddOperationFlags(CLI::App& app, RouterOptions& options, RawFlags& raw) {
  app.add_option("--max-queued-requests,--max-num-queued-reqs", options.api.admission.max_requests,
                 "Most requests (choices) that may wait for their first token")
      ->check(CLI::Range(1, 1 << 24));
  app.add_option("--max-queued-tokens,--max-num-queued-tokens", options.api.admission.max_tokens,
                 "Most prompt tokens that may wait")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  app.add_option("--request-timeout", raw.request_timeout_s,
                 "Seconds after which a request is given up; 0 = never")
      ->check(kSeconds);
  app.add_option("--shutdown-timeout", raw.shutdown_timeout_s,
                 "Seconds that running requests get to finish after SIGTERM")
      ->check(kSeconds);
  app.add_option("--vllm-metrics", raw.vllm_metrics, "Whether /metrics has vLLM's names too")
      ->check(CLI::IsMember({"on", "off"}));
  app.add_flag("--access-log,!--no-access-log", options.api.access_log, "One log line a request");
  app.add_option("--log-level", raw.log_level, "debug, info, warning or error")
      ->check(CLI::IsMember(kLogLevels));
  app.set_config("--config", "", "TOML file with the same names");
}

void AddFlags(CLI::App& app, RouterOptions& options, RawFlags& raw) {
  AddListenFlags(app, options, raw);
  AddAccessFlags(app, options, raw);
  AddModelFlags(app, options, raw);
  AddOperationFlags(app, options, raw);
}

std::string EnvironmentName(const std::string& flag) {
  std::string name = "PENSTOCK_" + flag;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return c == '-' ? '_' : static_cast<char>(std::toupper(c));
  });
  return name;
}

// Every flag has an environment variable of the same name, put before the command line: the last
// value of a flag wins, so they lose to flags and win over the file. For a list the variable counts
// only when the command line does not have the flag.
std::vector<std::string> EnvironmentFlags(CLI::App& app, int argc, const char* const* argv) {
  std::vector<std::string> flags;
  const auto typed = [&](const std::string& flag) {
    return std::any_of(argv + 1, argv + argc, [&](const char* argument) {
      const std::string_view text(argument);
      return text.starts_with("--" + flag) &&
             (text.size() == flag.size() + 2 || text[flag.size() + 2] == '=');
    });
  };
  for (CLI::Option* option : app.get_options([](CLI::Option*) { return true; })) {
    if (option->get_lnames().empty()) continue;
    const std::string& flag = option->get_lnames()[0];
    if (flag == "help" || flag == "version" || flag == "config") continue;
    const bool list = option->get_items_expected_max() > 1;
    if (!list) option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    const char* value = std::getenv(EnvironmentName(flag).c_str());
    if (value == nullptr || *value == '\0' || (list && typed(flag))) continue;
    flags.push_back("--" + flag + "=" + value);
  }
  const char* key = std::getenv("VLLM_API_KEY");
  if (key != nullptr && *key != '\0' && !typed("api-key") &&
      std::getenv("PENSTOCK_API_KEY") == nullptr) {
    flags.push_back(std::string("--api-key=") + key);
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

// vLLM takes a JSON list here; plain values are easier to type. CLI11 takes a list's brackets off
// itself when it comes from the command line, and leaves its items as JSON strings.
absl::StatusOr<std::vector<std::string>> ParseList(const char* flag,
                                                   const std::vector<std::string>& values) {
  std::vector<std::string> items;
  for (std::string value : values) {
    value.erase(0, value.find_first_not_of(' '));
    if (!value.starts_with('[') && !value.starts_with('"')) {
      items.push_back(value);
      continue;
    }
    const absl::StatusOr<Json> json = Json::Parse(value);
    const Json::Array one = json.ok() && json->is_string() ? Json::Array{*json} : Json::Array{};
    const Json::Array& list = json.ok() && json->is_array() ? json->as_array() : one;
    const bool strings =
        std::all_of(list.begin(), list.end(), [](const Json& item) { return item.is_string(); });
    if (!json.ok() || list.empty() || !strings) {
      return InvalidArgument("%s: %s is not a JSON list of strings", flag, value);
    }
    for (const Json& item : list) items.push_back(item.as_string());
  }
  return items;
}

// An empty text is an empty object.
absl::StatusOr<Json> ParseObject(const char* flag, const std::string& text) {
  if (text.empty()) return Json(Json::Object{});
  absl::StatusOr<Json> object = Json::Parse(text, {.reject_duplicate_keys = true});
  if (!object.ok() || !object->is_object()) {
    return InvalidArgument("%s: %s is not a JSON object", flag, text);
  }
  return object;
}

// The sampling parameters among generation_config.json's, with the ranges of requests.
absl::StatusOr<GenerationDefaults> ParseGenerationOverrides(const std::string& text) {
  constexpr char kFlag[] = "--override-generation-config";
  ASSIGN_OR_RETURN(const Json object, ParseObject(kFlag, text));
  GenerationDefaults result;
  struct Key {
    std::string_view name;
    std::optional<double>* real;
    std::optional<int64_t>* whole;
    double min, max;
  };
  constexpr double kMost = 1 << 30;
  const std::vector<Key> keys = {
      {"temperature", &result.temperature, nullptr, 0, 2},
      {"top_p", &result.top_p, nullptr, 0, 1},
      {"top_k", nullptr, &result.top_k, -1, kMost},
      {"min_p", &result.min_p, nullptr, 0, 1},
      {"repetition_penalty", &result.repetition_penalty, nullptr, 1e-6, kMost},
      {"max_new_tokens", nullptr, &result.max_new_tokens, 1, kMost},
  };
  for (const JsonMember& member : object.as_object()) {
    const auto key =
        std::find_if(keys.begin(), keys.end(), [&](const Key& k) { return k.name == member.key; });
    if (key == keys.end()) {
      return InvalidArgument(
          "%s: %s is not one of temperature, top_p, top_k, min_p, repetition_penalty and "
          "max_new_tokens",
          kFlag, member.key);
    }
    const Json& value = member.value;
    const std::optional<double> number = value.ToDouble();
    const bool is_kind = key->whole == nullptr || value.is_integer();
    if (!is_kind || !number.has_value() || *number < key->min || *number > key->max) {
      return InvalidArgument("%s: %s must be %s from %g to %g, got %s", kFlag, member.key,
                             key->whole != nullptr ? "an integer" : "a number", key->min, key->max,
                             value.Dump());
    }
    if (key->whole != nullptr) *key->whole = value.ToInt64();
    if (key->real != nullptr) *key->real = number;
  }
  return result;
}

bool IsLoopback(const RouterOptions& options) {
  const std::string& host = options.http.host;
  return !options.http.uds.empty() || host == "localhost" || host == "::1" ||
         host.starts_with("127.");
}

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

absl::Status ResolveAccess(const RawFlags& raw, RouterOptions* options) {
  ApiOptions& api = options->api;
  for (const std::string& key : api.api_keys) {
    if (key.empty()) {
      return InvalidArgument("--api-key: an empty key would let everyone in; leave it out instead");
    }
  }
  ASSIGN_OR_RETURN(api.cors.origins, ParseList("--allowed-origins", raw.origins));
  if (!raw.methods.empty()) {
    ASSIGN_OR_RETURN(api.cors.methods, ParseList("--allowed-methods", raw.methods));
  }
  if (!raw.headers.empty()) {
    ASSIGN_OR_RETURN(api.cors.headers, ParseList("--allowed-headers", raw.headers));
  }
  api.metrics_open =
      raw.metrics_auth == "off" || (raw.metrics_auth == "auto" && IsLoopback(*options));
  std::string& root = api.root_path;
  while (root.ends_with('/')) root.pop_back();
  if (!root.empty() && !root.starts_with('/')) root.insert(0, "/");
  return absl::OkStatus();
}

absl::Status Resolve(const RawFlags& raw, RouterOptions* options) {
  if (options->workers.empty()) {
    return InvalidArgument(
        "--worker: give the address of at least one worker, HOST:PORT or "
        "unix:/PATH");
  }
  RETURN_IF_ERROR(ResolveAccess(raw, options));
  for (const std::string& name : options->api.served_names) {
    if (name.empty()) return InvalidArgument("--served-model-name: a name is empty");
  }
  options->api.version = kVersion;
  options->api.clamp_overflow = raw.overflow == "clamp";
  options->api.model_defaults = raw.generation_config == "auto";
  ASSIGN_OR_RETURN(options->api.generation_overrides,
                   ParseGenerationOverrides(raw.override_generation_config));
  ASSIGN_OR_RETURN(options->api.chat_template_kwargs,
                   ParseObject("--default-chat-template-kwargs", raw.chat_template_kwargs));
  options->api.processed_logprobs = raw.logprobs_mode == "processed_logprobs";
  options->api.vllm_metrics = raw.vllm_metrics == "on";
  options->api.request_timeout_ms = Milliseconds(raw.request_timeout_s).count();
  options->http.limits.max_body_bytes = options->api.max_body_bytes;
  options->http.sse_keep_alive = Milliseconds(raw.sse_keep_alive_s);
  options->http.idle_timeout = Milliseconds(raw.keep_alive_s);
  options->http.write_timeout = Milliseconds(raw.write_timeout_s);
  options->shutdown_timeout = Milliseconds(raw.shutdown_timeout_s);
  options->log_level = kLogLevels.at(raw.log_level);
  return absl::OkStatus();
}

}  // namespace

std::vector<FlagInfo> RouterFlags() {
  CLI::App app;
  RouterOptions options;
  RawFlags raw;
  AddFlags(app, options, raw);
  return FlagsOf(app);
}

absl::StatusOr<ParsedRouterOptions> ParseRouterOptions(int argc, const char* const* argv) {
  CLI::App app("Serves the OpenAI API over HTTP in front of one or more workers.",
               "penstock-router");
  RouterOptions options;
  RawFlags raw;
  AddFlags(app, options, raw);
  app.set_version_flag("--version", kVersionText);
  app.allow_extras();
  std::vector<std::string> args = EnvironmentFlags(app, argc, argv);
  args.insert(args.end(), argv + 1, argv + argc);
  std::reverse(args.begin(), args.end());  // as CLI11 takes a vector
  try {
    app.parse(std::move(args));
  } catch (const CLI::CallForHelp&) {
    return ParsedRouterOptions{.text = app.help()};
  } catch (const CLI::CallForVersion&) {
    return ParsedRouterOptions{.text = kVersionText};
  } catch (const CLI::ParseError& error) {
    return InvalidArgument("%s", error.what());
  }
  if (const auto extras = app.remaining(); !extras.empty()) {
    return UnknownFlagError(extras[0], FlagsOf(app));
  }
  RETURN_IF_ERROR(Resolve(raw, &options));
  return ParsedRouterOptions{.options = std::move(options)};
}

}  // namespace penstock
