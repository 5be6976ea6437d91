// Resolves a model for the hub's tests: hub_fetch MODEL [REVISION]. Prints path, name and commit,
// or the error with its code on stderr and exits 3. HUB_FETCH_BACKOFF_MS, HUB_FETCH_IDLE_MS and
// HUB_FETCH_TERMINAL set what flags do not.

#include <cstdio>
#include <cstdlib>
#include <string>

#include "common/base/log.h"
#include "worker/model/hub.h"

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  penstock::InitLog("hub_fetch");
  auto options =
      penstock::HubOptionsFromEnvironment([](const char* name) { return std::getenv(name); });
  if (!options.ok()) {
    std::fprintf(stderr, "%s\n", options.status().ToString().c_str());
    return 3;
  }
  options->output = [](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); };
  const auto millis = [](const char* name, int otherwise) {
    const char* value = std::getenv(name);
    return std::chrono::milliseconds(value == nullptr ? otherwise : std::atoi(value));
  };
  options->backoff = millis("HUB_FETCH_BACKOFF_MS", 1000);
  options->idle_timeout = millis("HUB_FETCH_IDLE_MS", 30000);
  options->terminal = std::getenv("HUB_FETCH_TERMINAL") != nullptr;
  const auto location = penstock::ResolveModel(argv[1], argc > 2 ? argv[2] : "", *options);
  if (!location.ok()) {
    std::fprintf(stderr, "%s\n", location.status().ToString().c_str());
    return 3;
  }
  std::printf("%s\n%s\n%s\n", location->path.c_str(), location->name.c_str(),
              location->commit.c_str());
  return 0;
}
