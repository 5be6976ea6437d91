#pragma once

// The hub's HTTP interface: what a repository holds, a file's identity, a file's bytes.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/http_client.h"
#include "worker/model/hub.h"

namespace penstock {

struct HubRepo {
  std::string commit;
  std::vector<std::string> files;
};

struct HubFile {
  std::string name;
  std::string etag;  // names the blob; a sha256 for large files
  int64_t size = 0;
};

class HubApi {
 public:
  // options is borrowed.
  HubApi(const HubOptions& options, std::string repo) : options_(options), repo_(std::move(repo)) {}

  absl::StatusOr<HubRepo> Repo(const std::string& revision) const;
  absl::StatusOr<HubFile> File(const std::string& commit, const std::string& name) const;

  struct Sink {
    // Before the first byte: false when the server sends the file from its beginning although
    // another offset was asked for.
    std::function<absl::Status(bool at_offset)> start;
    std::function<absl::Status(std::string_view)> write;
  };
  // One attempt at the bytes from offset on.
  absl::Status Download(const std::string& commit, const std::string& name, int64_t offset,
                        const Sink& sink) const;

  // Runs attempt until it succeeds, fails for good or has made no progress max_attempts times.
  // made_progress tells whether the last attempt got further; may be null.
  absl::Status Retry(const std::function<absl::Status()>& attempt,
                     const std::function<bool()>& made_progress) const;

 private:
  absl::StatusOr<HttpRequest> Request(const std::string& method, const Url& url) const;
  // Status of an answer that is no success, in the user's terms.
  absl::Status Refusal(const HttpHead& head, const Url& url, std::string_view what) const;
  absl::StatusOr<Url> FileUrl(const std::string& commit, const std::string& name) const;
  absl::StatusOr<HttpHead> FinalHead(const std::string& commit, const std::string& name) const;

  const HubOptions& options_;
  const std::string repo_;
};

}  // namespace penstock
