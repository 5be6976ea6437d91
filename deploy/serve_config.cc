#include "deploy/serve_config.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>

#include "common/base/status.h"
#include "deploy/serve_arguments.h"

namespace penstock {
namespace {

const FlagInfo* Find(std::span<const FlagInfo> flags, const std::string& name) {
  const auto it =
      std::find_if(flags.begin(), flags.end(), [&](const FlagInfo& f) { return f.name == name; });
  return it == flags.end() ? nullptr : &*it;
}

// CLI11 reads the file; it throws, and this is where that ends.
absl::StatusOr<std::vector<CLI::ConfigItem>> ReadToml(const std::string& path) {
  std::ifstream file(path);
  if (!file) return InvalidArgument("--config: cannot read %s", path);
  try {
    return CLI::ConfigTOML().from_config(file);
  } catch (const CLI::Error& error) {
    return InvalidArgument("--config: %s: %s", path, error.what());
  }
}

bool IsFalse(const std::vector<std::string>& values) {
  return values.size() == 1 && (values[0] == "false" || values[0] == "off" || values[0] == "no");
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandConfig(std::span<const std::string> arguments,
                                                      std::span<const FlagInfo> router_flags,
                                                      std::span<const FlagInfo> worker_flags) {
  std::vector<std::string> typed;
  std::string path;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].starts_with("--config=")) {
      path = arguments[i].substr(sizeof("--config=") - 1);
    } else if (arguments[i] == "--config") {
      if (i + 1 == arguments.size()) return InvalidArgument("--config: its value is missing");
      path = arguments[++i];
    } else {
      typed.push_back(arguments[i]);
    }
  }
  if (path.empty()) return typed;
  ASSIGN_OR_RETURN(const std::vector<CLI::ConfigItem> items, ReadToml(path));
  std::vector<std::string> result;
  bool model_typed = std::any_of(typed.begin(), typed.end(),
                                 [](const std::string& a) { return a.starts_with("--model"); }) ||
                     (!typed.empty() && !typed[0].starts_with("-"));
  for (const CLI::ConfigItem& item : items) {
    if (item.name == "++" || item.name == "--") continue;  // section marks
    std::string name =
        "--" + item.name.substr(std::min(item.name.size(), item.name.find_first_not_of('-')));
    std::replace(name.begin(), name.end(), '_', '-');
    const FlagInfo* info = Find(LauncherFlags(), name);
    if (info == nullptr) info = Find(router_flags, name);
    if (info == nullptr) info = Find(worker_flags, name);
    if (info == nullptr) {
      std::vector<FlagInfo> all(LauncherFlags().begin(), LauncherFlags().end());
      all.insert(all.end(), router_flags.begin(), router_flags.end());
      all.insert(all.end(), worker_flags.begin(), worker_flags.end());
      return InvalidArgument("--config: %s: %s", path,
                             std::string(UnknownFlagError(name, all).message()));
    }
    if (name == "--model" && model_typed) continue;
    if (!info->takes_value) {
      result.push_back(IsFalse(item.inputs) ? "--no-" + name.substr(2) : name);
      continue;
    }
    for (const std::string& value : item.inputs) result.push_back(name + "=" + value);
  }
  result.insert(result.end(), typed.begin(), typed.end());
  return result;
}

}  // namespace penstock
