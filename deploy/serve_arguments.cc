#include "deploy/serve_arguments.h"

#include <algorithm>
#include <charconv>

#include "common/base/status.h"

namespace penstock {
namespace {

constexpr int kMaxReplicas = 64;

// What the launcher decides for its children; typing it is a mistake.
constexpr std::string_view kDecidedHere[] = {"--listen", "--worker", "--die-with-parent"};

const FlagInfo* FindFlag(std::span<const FlagInfo> flags, std::string_view name) {
  const auto it = std::find_if(flags.begin(), flags.end(),
                               [&](const FlagInfo& flag) { return flag.name == name; });
  return it == flags.end() ? nullptr : &*it;
}

absl::StatusOr<int> ParseReplicas(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 ||
      value > kMaxReplicas) {
    return InvalidArgument("--replicas: '%s' is not a number from 1 to %d", text, kMaxReplicas);
  }
  return value;
}

// One flag with its values, as typed.
struct Occurrence {
  std::string name;
  std::vector<std::string> values;
};

class Splitter {
 public:
  Splitter(std::span<const std::string> arguments, std::span<const FlagInfo> router,
           std::span<const FlagInfo> worker)
      : arguments_(arguments), router_(router), worker_(worker) {}

  absl::StatusOr<ServeArguments> Run() {
    while (next_ < arguments_.size()) {
      const std::string& argument = arguments_[next_++];
      if (argument == "-h" || argument == "--help") {
        result_.help = true;
      } else if (!argument.starts_with("-") || argument == "-") {
        RETURN_IF_ERROR(TakeModel(argument));
      } else {
        RETURN_IF_ERROR(TakeFlag(argument));
      }
    }
    if (result_.model.empty() && !result_.help) {
      return InvalidArgument(
          "which model? penstock serve MODEL, where MODEL is a directory, a GGUF file or a hub id "
          "such as HuggingFaceTB/SmolLM2-135M-Instruct");
    }
    return std::move(result_);
  }

 private:
  absl::Status TakeModel(const std::string& text) {
    if (!result_.model.empty()) {
      return InvalidArgument("two models: '%s' and '%s'; a server has one", result_.model, text);
    }
    result_.model = text;
    return absl::OkStatus();
  }

  absl::Status TakeFlag(const std::string& argument) {
    const size_t equals = argument.find('=');
    Occurrence flag = {.name = argument.substr(0, equals), .values = {}};
    for (const std::string_view decided : kDecidedHere) {
      if (flag.name == decided) {
        return InvalidArgument(
            "%s: decided by penstock serve; run penstock-router and "
            "penstock-worker on their own to choose it",
            flag.name);
      }
    }
    const FlagInfo* launcher = FindFlag(LauncherFlags(), flag.name);
    const FlagInfo* router = FindFlag(router_, flag.name);
    const FlagInfo* worker = FindFlag(worker_, flag.name);
    const FlagInfo* info = launcher != nullptr ? launcher : router != nullptr ? router : worker;
    if (info == nullptr) return Unknown(argument);
    if (equals != std::string::npos) {
      flag.values.push_back(argument.substr(equals + 1));
    } else if (info->takes_value) {
      RETURN_IF_ERROR(TakeValues(*info, &flag));
    }
    if (launcher != nullptr) return Apply(flag);
    if (router != nullptr) Append(flag, *router, &result_.router);
    if (worker != nullptr) Append(flag, *worker, &result_.worker);
    return absl::OkStatus();
  }

  absl::Status TakeValues(const FlagInfo& info, Occurrence* flag) {
    while (next_ < arguments_.size() && !arguments_[next_].starts_with("--")) {
      flag->values.push_back(arguments_[next_++]);
      if (!info.multiple) break;
    }
    if (flag->values.empty()) return InvalidArgument("%s: its value is missing", flag->name);
    return absl::OkStatus();
  }

  // A worker takes only the first of several values (the name that a response shows).
  static void Append(const Occurrence& flag, const FlagInfo& info, std::vector<std::string>* out) {
    if (flag.values.empty()) {
      out->push_back(flag.name);
      return;
    }
    const size_t count = info.multiple ? flag.values.size() : 1;
    for (size_t i = 0; i < count; ++i) out->push_back(flag.name + "=" + flag.values[i]);
  }

  absl::Status Apply(const Occurrence& flag) {
    if (flag.name == "--model") return TakeModel(flag.values[0]);
    if (flag.name == "--revision") {
      result_.revision = flag.values[0];
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(result_.replicas, ParseReplicas(flag.values[0]));
    return absl::OkStatus();
  }

  absl::Status Unknown(const std::string& argument) const {
    std::vector<FlagInfo> all(LauncherFlags().begin(), LauncherFlags().end());
    all.insert(all.end(), router_.begin(), router_.end());
    all.insert(all.end(), worker_.begin(), worker_.end());
    return UnknownFlagError(argument, all);
  }

  std::span<const std::string> arguments_;
  std::span<const FlagInfo> router_;
  std::span<const FlagInfo> worker_;
  size_t next_ = 0;
  ServeArguments result_;
};

}  // namespace

std::span<const FlagInfo> LauncherFlags() {
  static const FlagInfo kFlags[] = {
      {.name = "--model"}, {.name = "--revision"}, {.name = "--replicas"}};
  return kFlags;
}

absl::StatusOr<ServeArguments> SplitServeArguments(std::span<const std::string> arguments,
                                                   std::span<const FlagInfo> router_flags,
                                                   std::span<const FlagInfo> worker_flags) {
  return Splitter(arguments, router_flags, worker_flags).Run();
}

std::string LastValue(std::span<const std::string> arguments, std::string_view flag,
                      std::string_view fallback) {
  std::string value(fallback);
  const std::string prefix = std::string(flag) + "=";
  for (const std::string& argument : arguments) {
    if (argument.starts_with(prefix)) value = argument.substr(prefix.size());
  }
  return value;
}

}  // namespace penstock
