#include "worker/model/hub_api.h"

#include <algorithm>
#include <thread>

#include "common/base/status.h"
#include "common/json/json.h"
#include "worker/model/hub_cache.h"

namespace penstock {
namespace {

constexpr int kMaxRedirects = 5;
constexpr size_t kMaxApiBytes = size_t{32} << 20;

bool IsRedirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// Percent-encodes all but letters, digits, "-_.~" and, where kept, slashes.
std::string Escaped(std::string_view text, bool keep_slashes) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') ||
                       (byte >= 'a' && byte <= 'z') || c == '-' || c == '_' || c == '.' ||
                       c == '~' || (keep_slashes && c == '/');
    out += plain ? std::string(1, c) : absl::StrFormat("%%%02X", byte);
  }
  return out;
}

// W/"abc" and "abc" -> abc
std::string PlainEtag(std::string etag) {
  if (etag.starts_with("W/")) etag.erase(0, 2);
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') {
    etag = etag.substr(1, etag.size() - 2);
  }
  return etag;
}

}  // namespace

absl::StatusOr<HttpRequest> HubApi::Request(const std::string& method, const Url& url) const {
  ASSIGN_OR_RETURN(const Url endpoint, Url::Parse(options_.endpoint));
  HttpRequest request{.method = method, .url = url, .idle_timeout = options_.idle_timeout};
  request.headers["Accept-Encoding"] = "identity";
  // Never to another host: a redirect to a content server carries its own signature.
  if (!options_.token.empty() && url.SameOrigin(endpoint)) {
    request.headers["Authorization"] = "Bearer " + options_.token;
  }
  return request;
}

absl::Status HubApi::Refusal(const HttpHead& head, const Url& url, std::string_view what) const {
  const std::string code = head.Header("x-error-code");
  const std::string reason = head.Header("x-error-message");
  const std::string page = options_.endpoint + "/" + repo_;
  if (code == "GatedRepo") {
    return absl::PermissionDeniedError(absl::StrFormat(
        "%s is a gated model: accept its conditions at %s%s", repo_, page,
        options_.token.empty()
            ? ", then set HF_TOKEN to a token of your account (or write it to $HF_HOME/token)"
            : ", with the account whose token is in use"));
  }
  if (code == "RevisionNotFound") return NotFound("%s has no revision %s", repo_, what);
  if (code == "EntryNotFound") return NotFound("%s has no file %s", repo_, what);
  if (head.status == 401 && !options_.token.empty() && code != "RepoNotFound") {
    return absl::PermissionDeniedError(
        absl::StrFormat("%s refuses the token that is in use (HF_TOKEN or $HF_HOME/token): it is "
                        "wrong or has expired",
                        options_.endpoint));
  }
  // The hub answers 401 for a name that does not exist, so as not to tell which private ones do.
  if (head.status == 401 || head.status == 404) {
    return NotFound("%s has no model '%s' that you can see: check the name%s", options_.endpoint,
                    repo_,
                    options_.token.empty() ? "; for a private or gated model set HF_TOKEN" : "");
  }
  if (head.status == 403) {
    return absl::PermissionDeniedError(
        absl::StrFormat("%s may not be read with this token%s%s (%s)", repo_,
                        reason.empty() ? "" : ": ", reason, page));
  }
  const std::string message = absl::StrFormat("%s answered %d%s%s", url.Text(), head.status,
                                              reason.empty() ? "" : ": ", reason);
  if (head.status == 429 || head.status == 408 || head.status >= 500) {
    return absl::UnavailableError(message);
  }
  return absl::FailedPreconditionError(message);
}

absl::StatusOr<HubRepo> HubApi::Repo(const std::string& revision) const {
  ASSIGN_OR_RETURN(Url url, Url::Parse(options_.endpoint + "/api/models/" + repo_ + "/revision/" +
                                       Escaped(revision, false)));
  std::string body;
  int status = 0;
  for (int hop = 0; hop <= kMaxRedirects; ++hop) {
    ASSIGN_OR_RETURN(const HttpRequest request, Request("GET", url));
    HttpHead head;
    body.clear();
    HttpHandler handler;
    handler.on_head = [&](const HttpHead& got) {
      head = got;
      return got.status == 200 || IsRedirect(got.status) ? absl::OkStatus()
                                                         : Refusal(got, url, revision);
    };
    handler.on_body = [&](std::string_view piece) {
      body.append(piece);
      return body.size() <= kMaxApiBytes
                 ? absl::OkStatus()
                 : FailedPrecondition("%s sends more than %d bytes", url.Text(), kMaxApiBytes);
    };
    RETURN_IF_ERROR(HttpFetch(request, handler));
    status = head.status;
    if (status == 200) break;
    ASSIGN_OR_RETURN(url, url.Resolve(head.Header("location")));
  }
  if (status != 200) return FailedPrecondition("%s redirects without end", url.Text());
  const absl::StatusOr<Json> info = Json::Parse(body);
  const Json* sha = info.ok() ? info->Find("sha") : nullptr;
  const Json* siblings = info.ok() ? info->Find("siblings") : nullptr;
  if (sha == nullptr || !sha->is_string() || !IsCommit(sha->as_string()) || siblings == nullptr ||
      !siblings->is_array()) {
    return FailedPrecondition(
        "%s did not answer as a model hub does (no sha and siblings): is HF_ENDPOINT right?",
        url.Text());
  }
  HubRepo repo{.commit = sha->as_string()};
  for (const Json& sibling : siblings->as_array()) {
    const Json* name = sibling.Find("rfilename");
    if (name != nullptr && name->is_string()) repo.files.push_back(name->as_string());
  }
  return repo;
}

absl::StatusOr<Url> HubApi::FileUrl(const std::string& commit, const std::string& name) const {
  return Url::Parse(options_.endpoint + "/" + repo_ + "/resolve/" + commit + "/" +
                    Escaped(name, true));
}

// Redirects within the hub (a renamed repository) are followed; the one to a content server is
// not: the hub's own headers tell the file's identity.
absl::StatusOr<HttpHead> HubApi::FinalHead(const std::string& commit,
                                           const std::string& name) const {
  ASSIGN_OR_RETURN(Url url, FileUrl(commit, name));
  for (int hop = 0; hop <= kMaxRedirects; ++hop) {
    ASSIGN_OR_RETURN(const HttpRequest request, Request("HEAD", url));
    HttpHead head;
    HttpHandler handler;
    handler.on_head = [&](const HttpHead& got) {
      head = got;
      return got.status == 200 || IsRedirect(got.status) ? absl::OkStatus()
                                                         : Refusal(got, url, name);
    };
    RETURN_IF_ERROR(HttpFetch(request, handler));
    if (head.status == 200) return head;
    ASSIGN_OR_RETURN(const Url next, url.Resolve(head.Header("location")));
    if (!next.SameOrigin(url)) return head;
    url = next;
  }
  return FailedPrecondition("%s redirects without end", url.Text());
}

absl::StatusOr<HubFile> HubApi::File(const std::string& commit, const std::string& name) const {
  ASSIGN_OR_RETURN(const HttpHead head, FinalHead(commit, name));
  HubFile file{.name = name};
  const std::string linked = head.Header("x-linked-etag");
  file.etag = PlainEtag(linked.empty() ? head.Header("etag") : linked);
  RETURN_IF_ERROR(CheckEtag(file.etag));
  HttpHead size_head;
  size_head.headers["content-length"] = head.Header("x-linked-size");
  std::optional<int64_t> size = size_head.ContentLength();
  if (!size.has_value()) size = head.ContentLength();
  if (!size.has_value()) {
    return FailedPrecondition("%s does not tell the size of %s of %s", options_.endpoint, name,
                              repo_);
  }
  file.size = *size;
  return file;
}

absl::Status HubApi::Download(const std::string& commit, const std::string& name, int64_t offset,
                              const Sink& sink) const {
  ASSIGN_OR_RETURN(Url url, FileUrl(commit, name));
  for (int hop = 0; hop <= kMaxRedirects; ++hop) {
    ASSIGN_OR_RETURN(HttpRequest request, Request("GET", url));
    if (offset > 0) request.headers["Range"] = absl::StrFormat("bytes=%d-", offset);
    std::string location;
    HttpHandler handler;
    handler.on_head = [&](const HttpHead& head) {
      if (IsRedirect(head.status)) {
        location = head.Header("location");
        return absl::OkStatus();
      }
      if (head.status != 200 && head.status != 206) return Refusal(head, url, name);
      const std::string range = head.Header("content-range");
      const bool at_offset =
          head.status == 206 && range.starts_with(absl::StrFormat("bytes %d-", offset));
      if (head.status == 206 && !at_offset) {
        return Unavailable("%s sent the range '%s' when asked from byte %d", url.Text(), range,
                           offset);
      }
      return sink.start(at_offset || offset == 0);
    };
    handler.on_body = [&](std::string_view piece) {
      return location.empty() ? sink.write(piece) : absl::OkStatus();
    };
    RETURN_IF_ERROR(HttpFetch(request, handler));
    if (location.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(url, url.Resolve(location));
  }
  return FailedPrecondition("%s redirects without end", url.Text());
}

absl::Status HubApi::Retry(const std::function<absl::Status()>& attempt,
                           const std::function<bool()>& made_progress) const {
  constexpr int kMaxDoublings = 4;
  int failures = 0;
  while (true) {
    const absl::Status status = attempt();
    if (status.code() != absl::StatusCode::kUnavailable) return status;
    failures = made_progress != nullptr && made_progress() ? 1 : failures + 1;
    if (failures >= options_.max_attempts) {
      return Unavailable("%s (%d attempts in a row without progress)",
                         std::string(status.message()), failures);
    }
    const auto wait = options_.backoff * (1 << std::min(failures - 1, kMaxDoublings));
    if (options_.output != nullptr) {
      options_.output(absl::StrFormat("%s; trying again in %.0f s\n", std::string(status.message()),
                                      std::chrono::duration<double>(wait).count()));
    }
    std::this_thread::sleep_for(wait);
  }
}

}  // namespace penstock
