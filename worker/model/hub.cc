#include "worker/model/hub.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/formats/mapped_file.h"
#include "worker/model/hub_api.h"
#include "worker/model/hub_cache.h"
#include "worker/model/hub_download.h"
#include "worker/model/hub_progress.h"
#include "worker/model/hub_select.h"
#include "worker/model/memory_report.h"
#include "worker/model/model_config.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSpareBytes = 64 << 20;  // left free beside what is downloaded

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

struct HubModel {
  std::string repo;
  std::string variant;
};

// nullopt when the text cannot be a hub id.
std::optional<HubModel> ParseHubModel(const std::string& text) {
  const size_t colon = text.find(':');
  HubModel model{.repo = text.substr(0, colon)};
  if (colon != std::string::npos) model.variant = text.substr(colon + 1);
  if (!IsRepoId(model.repo) || (colon != std::string::npos && model.variant.empty())) {
    return std::nullopt;
  }
  return model;
}

ModelLocation Located(const HubCache& cache, const HubSelection& selection,
                      const std::string& commit) {
  const std::string folder = cache.SnapshotFolder(commit);
  return {.path = selection.gguf ? folder + "/" + selection.weights[0] : folder,
          .name = cache.repo(),
          .commit = commit};
}

// A snapshot from which the model can be served, or what is missing.
absl::StatusOr<ModelLocation> FromCache(const HubCache& cache, const HubModel& model,
                                        const std::string& commit) {
  ASSIGN_OR_RETURN(HubSelection selection,
                   SelectHubFiles(cache.SnapshotFiles(commit), model.variant, model.repo));
  if (selection.has_index) {
    const std::string index = cache.SnapshotFolder(commit) + "/" + kSafetensorsIndex;
    ASSIGN_OR_RETURN(const std::string text, ReadFile(index));
    ASSIGN_OR_RETURN(selection.weights, ShardsOfIndex(text, index));
  }
  for (const std::string& file : selection.weights) {
    if (!cache.HasFile(commit, file)) return NotFound("%s is not in the cache", file);
  }
  if (selection.gguf) return Located(cache, selection, commit);
  if (!cache.HasFile(commit, "config.json")) return NotFound("config.json is not in the cache");
  const bool tokenizer =
      std::any_of(selection.small.begin(), selection.small.end(), [](const std::string& file) {
        return file == "tokenizer.json" || file == "tokenizer.model" || file == "tekken.json" ||
               file == "vocab.json" || file == "vocab.txt" || file.ends_with(".tiktoken");
      });
  if (!tokenizer) return NotFound("the tokenizer is not in the cache");
  return Located(cache, selection, commit);
}

class Fetcher {
 public:
  Fetcher(const HubOptions& options, const HubCache& cache, const std::string& commit)
      : options_(options), cache_(cache), api_(options, cache.repo()), commit_(commit) {}

  absl::Status Fetch(const std::vector<std::string>& names) {
    std::vector<HubFile> files;
    int64_t total = 0;
    int64_t missing = 0;
    for (const std::string& name : names) {
      if (cache_.HasFile(commit_, name)) continue;
      HubFile file;
      RETURN_IF_ERROR(api_.Retry(
          [&] {
            ASSIGN_OR_RETURN(file, api_.File(commit_, name));
            return absl::OkStatus();
          },
          nullptr));
      total += file.size;
      missing += MissingBytes(cache_, file);
      files.push_back(std::move(file));
    }
    ASSIGN_OR_RETURN(const int64_t available, cache_.FreeBytes());
    if (missing > 0 && missing + kSpareBytes > available) {
      return ResourceExhausted(
          "%s needs %s more in %s, where %s are free: free some space or set HF_HOME to a larger "
          "disk",
          cache_.repo(), BytesText(missing), cache_.root(), BytesText(available));
    }
    const auto write = [this](std::string_view text) {
      if (options_.output != nullptr) options_.output(text);
    };
    HubProgress progress(options_.terminal, total, write);
    for (const HubFile& file : files) {
      RETURN_IF_ERROR(DownloadFile(api_, cache_, commit_, file, &progress));
    }
    return absl::OkStatus();
  }

 private:
  const HubOptions& options_;
  const HubCache& cache_;
  const HubApi api_;
  const std::string commit_;
};

absl::StatusOr<ModelLocation> FetchRepo(const HubOptions& options, const HubCache& cache,
                                        const HubModel& model, const HubRepo& repo, bool weights) {
  ASSIGN_OR_RETURN(HubSelection selection, SelectHubFiles(repo.files, model.variant, model.repo));
  Fetcher fetcher(options, cache, repo.commit);
  RETURN_IF_ERROR(fetcher.Fetch(selection.small));
  const std::string folder = cache.SnapshotFolder(repo.commit);
  if (!selection.gguf) {
    // An architecture that cannot be served is refused before gigabytes arrive.
    if (!cache.HasFile(repo.commit, "config.json")) {
      return NotFound("%s has no config.json", model.repo);
    }
    RETURN_IF_ERROR(SpecFromConfigFile(folder + "/config.json").status());
  }
  if (!weights && !selection.gguf) return Located(cache, selection, repo.commit);
  if (selection.has_index) {
    const std::string index = folder + "/" + kSafetensorsIndex;
    ASSIGN_OR_RETURN(const std::string text, ReadFile(index));
    ASSIGN_OR_RETURN(selection.weights, ShardsOfIndex(text, index));
  }
  RETURN_IF_ERROR(fetcher.Fetch(selection.weights));
  return Located(cache, selection, repo.commit);
}

absl::StatusOr<ModelLocation> ResolveOffline(const HubCache& cache, const HubModel& model,
                                             const std::string& revision) {
  const std::optional<std::string> commit = cache.CommitOf(revision);
  if (!commit.has_value()) {
    return NotFound(
        "HF_HUB_OFFLINE is set, and revision %s of %s is not in the cache %s: download it while "
        "online, or name a local folder",
        revision, model.repo, cache.root());
  }
  absl::StatusOr<ModelLocation> found = FromCache(cache, model, *commit);
  if (found.ok()) return found;
  return absl::Status(
      found.status().code(),
      absl::StrFormat("HF_HUB_OFFLINE is set, and %s cannot be served from the "
                      "cache %s: %s",
                      model.repo, cache.root(), std::string(found.status().message())));
}

absl::StatusOr<ModelLocation> ResolveHub(const HubModel& model, const std::string& revision,
                                         const HubOptions& options, bool weights) {
  RETURN_IF_ERROR(CheckRevision(revision));
  const HubCache cache(options.cache, model.repo);
  const std::optional<std::string> seen = cache.CommitOf(revision);
  if (!weights && seen.has_value() && (options.offline || IsCommit(revision)) &&
      cache.HasFile(*seen, "config.json")) {
    return ModelLocation{.path = cache.SnapshotFolder(*seen), .name = model.repo, .commit = *seen};
  }
  if (options.offline) return ResolveOffline(cache, model, revision);
  if (IsCommit(revision)) {  // content never changes: no need to ask
    absl::StatusOr<ModelLocation> found = FromCache(cache, model, revision);
    if (found.ok()) return found;
  }
  const HubApi api(options, model.repo);
  HubRepo repo;
  const auto ask = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(repo, api.Repo(revision));
    return absl::OkStatus();
  };
  absl::StatusOr<ModelLocation> cached = absl::NotFoundError("not cached");
  if (seen.has_value()) cached = FromCache(cache, model, *seen);
  // With a model at hand an unreachable hub is no reason to wait.
  const absl::Status asked = cached.ok() ? ask() : api.Retry(ask, nullptr);
  if (absl::IsUnavailable(asked) && cached.ok()) {
    LogWarning("%s; serving the cached commit %s of %s", std::string(asked.message()), *seen,
               model.repo);
    return cached;
  }
  RETURN_IF_ERROR(asked);
  RETURN_IF_ERROR(cache.Prepare());
  RETURN_IF_ERROR(cache.RememberCommit(revision, repo.commit));
  return FetchRepo(options, cache, model, repo, weights);
}

bool IsTrue(const char* value) {
  std::string text = value == nullptr ? "" : value;
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text == "1" || text == "ON" || text == "YES" || text == "TRUE";
}

std::string Trimmed(std::string text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
  while (!text.empty() && is_space(text.back())) text.pop_back();
  while (!text.empty() && is_space(text.front())) text.erase(0, 1);
  return text;
}

}  // namespace

absl::StatusOr<HubOptions> HubOptionsFromEnvironment(
    const std::function<const char*(const char*)>& lookup) {
  const auto first = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      const char* value = lookup(name);
      if (value != nullptr && *value != '\0') return std::string(value);
    }
    return std::string();
  };
  const auto expanded = [&](std::string path) {
    if (path == "~" || path.starts_with("~/")) path.replace(0, 1, first({"HOME"}));
    return path;
  };
  std::string home = expanded(first({"HF_HOME"}));
  if (home.empty()) {
    const std::string caches = expanded(first({"XDG_CACHE_HOME"}));
    const std::string user = first({"HOME"});
    if (caches.empty() && user.empty()) {
      return InvalidArgument("HOME is not set: set HF_HOME to a folder for downloaded models");
    }
    home = (caches.empty() ? user + "/.cache" : caches) + "/huggingface";
  }
  HubOptions options;
  options.cache = expanded(first({"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}));
  if (options.cache.empty()) options.cache = home + "/hub";
  options.endpoint = first({"HF_ENDPOINT"});
  if (options.endpoint.empty()) options.endpoint = "https://huggingface.co";
  while (options.endpoint.ends_with('/')) options.endpoint.pop_back();
  const absl::StatusOr<Url> endpoint = Url::Parse(options.endpoint);
  if (!endpoint.ok()) {
    return InvalidArgument("HF_ENDPOINT: %s", std::string(endpoint.status().message()));
  }
  options.offline = IsTrue(lookup("HF_HUB_OFFLINE")) || IsTrue(lookup("TRANSFORMERS_OFFLINE"));
  options.token = Trimmed(first({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}));
  if (options.token.empty() && !IsTrue(lookup("HF_HUB_DISABLE_IMPLICIT_TOKEN"))) {
    std::string path = expanded(first({"HF_TOKEN_PATH"}));
    if (path.empty()) path = home + "/token";
    const absl::StatusOr<std::string> text = ReadFile(path, 4096);
    if (text.ok()) options.token = Trimmed(*text);
  }
  if (options.token.find_first_of("\r\n") != std::string::npos) {
    return InvalidArgument("the hub token has more than one line");
  }
  return options;
}

namespace {

absl::StatusOr<ModelLocation> Resolve(const std::string& model, const std::string& revision,
                                      const HubOptions& options, bool weights) {
  if (model.empty()) {
    return InvalidArgument("no model: name a folder, a GGUF file or a hub id such as org/name");
  }
  if (Exists(model)) {
    if (!revision.empty()) {
      return InvalidArgument("--revision is for hub ids; %s is a local path", model);
    }
    fs::path path(model);
    if (!path.has_filename()) path = path.parent_path();  // "folder/"
    const std::string name = path.filename().string();
    return ModelLocation{.path = model,
                         .name = name.ends_with(".gguf") ? name.substr(0, name.size() - 5) : name};
  }
  const std::optional<HubModel> hub = ParseHubModel(model);
  if (!hub.has_value()) {
    return NotFound("%s does not exist, and is no hub id (org/name or org/name:variant)", model);
  }
  return ResolveHub(*hub, revision.empty() ? "main" : revision, options, weights);
}

}  // namespace

absl::StatusOr<ModelLocation> ResolveModel(const std::string& model, const std::string& revision,
                                           const HubOptions& options) {
  return Resolve(model, revision, options, true);
}

absl::StatusOr<std::string> ResolveConfig(const std::string& model, const std::string& revision,
                                          const HubOptions& options) {
  ASSIGN_OR_RETURN(const ModelLocation location, Resolve(model, revision, options, false));
  return location.path;
}

}  // namespace penstock
