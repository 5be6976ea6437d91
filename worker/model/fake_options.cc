// Reads the fake runner's options from one string, as given to --fake-options.

#include <charconv>
#include <fstream>
#include <map>
#include <sstream>

#include "common/base/status.h"
#include "worker/model/fake_runner.h"

namespace penstock {
namespace {

template <typename T>
absl::Status ReadNumber(std::string_view name, std::string_view text, T* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  if (error == std::errc() && end == text.data() + text.size()) return absl::OkStatus();
  return InvalidArgument("fake option %s: '%s' is not a number", name, text);
}

absl::Status ReadMode(std::string_view text, FakeRunnerOptions::Mode* mode) {
  if (text == "hash") {
    *mode = FakeRunnerOptions::Mode::kHash;
  } else if (text == "echo") {
    *mode = FakeRunnerOptions::Mode::kEcho;
  } else if (text == "script") {
    *mode = FakeRunnerOptions::Mode::kScript;
  } else {
    return InvalidArgument("fake option mode: '%s' is none of hash, echo, script", text);
  }
  return absl::OkStatus();
}

absl::Status ReadScripts(const std::string& path, FakeRunnerOptions* options) {
  std::ifstream file(path);
  if (!file) return NotFound("fake option scripts: cannot read %s", path);
  options->mode = FakeRunnerOptions::Mode::kScript;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::vector<TokenId> script;
    for (TokenId id; words >> id;) script.push_back(id);
    if (!words.eof()) return InvalidArgument("fake option scripts: %s: bad line '%s'", path, line);
    options->scripts.push_back(std::move(script));
  }
  return absl::OkStatus();
}

// The numbers that can be set, by name.
struct Numbers {
  std::map<std::string_view, int32_t*> small;
  std::map<std::string_view, int64_t*> large;
};

Numbers NumbersOf(FakeRunnerOptions* o) {
  return {{{"first-id", &o->first_id},
           {"eos-id", &o->eos_id},
           {"vocab-size", &o->vocab_size},
           {"max-model-len", &o->max_model_len},
           {"block-size", &o->block_size},
           {"max-num-seqs", &o->max_num_seqs},
           {"max-num-batched-tokens", &o->max_num_batched_tokens},
           {"num-blocks", &o->num_blocks},
           {"nonfinite-index", &o->nonfinite_index}},
          {{"step-us", &o->step_us},
           {"token-us", &o->token_us},
           {"start-ms", &o->start_ms},
           {"fail-at-step", &o->fail_at_step},
           {"hang-at-step", &o->hang_at_step},
           {"nonfinite-seed", &o->nonfinite_seed}}};
}

absl::Status ReadPart(std::string_view part, FakeRunnerOptions* options) {
  const size_t equals = part.find('=');
  if (equals == std::string_view::npos) {
    return InvalidArgument("fake option '%s': expected name=value", part);
  }
  const std::string_view name = part.substr(0, equals);
  const std::string_view value = part.substr(equals + 1);
  if (name == "mode") return ReadMode(value, &options->mode);
  if (name == "scripts") return ReadScripts(std::string(value), options);
  if (name == "window") {  // may be repeated: one KV group each
    options->windows.push_back(0);
    return ReadNumber(name, value, &options->windows.back());
  }
  if (name == "verify") {
    options->verify = value == "true" || value == "1";
    return absl::OkStatus();
  }
  const Numbers numbers = NumbersOf(options);
  if (const auto it = numbers.small.find(name); it != numbers.small.end()) {
    return ReadNumber(name, value, it->second);
  }
  if (const auto it = numbers.large.find(name); it != numbers.large.end()) {
    return ReadNumber(name, value, it->second);
  }
  return InvalidArgument("fake option '%s' is not known", name);
}

}  // namespace

absl::StatusOr<FakeRunnerOptions> ParseFakeRunnerOptions(std::string_view text,
                                                         FakeRunnerOptions options) {
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    RETURN_IF_ERROR(ReadPart(text.substr(0, comma), &options));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return options;
}

}  // namespace penstock
