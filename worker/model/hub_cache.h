#pragma once

// The cache layout that huggingface_hub uses, so that both programs share one cache:
//   models--org--name/blobs/<etag>            content (and <etag>.incomplete while it arrives)
//   models--org--name/refs/<revision>         the commit that a branch or tag was last seen at
//   models--org--name/snapshots/<commit>/...  relative links to blobs
//   .locks/models--org--name/<etag>.lock      flock held while a blob arrives
// Names come from the network: every one is checked before it becomes part of a path.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock {

// "org/name" of letters, digits, '-', '_' and '.', without ".." or "--".
bool IsRepoId(std::string_view text);
// 40 hex digits.
bool IsCommit(std::string_view text);

class HubCache {
 public:
  // root is HF_HUB_CACHE; repo has passed IsRepoId.
  HubCache(std::string root, std::string repo);

  // The commit that the revision is known to mean; nullopt when it was never seen.
  std::optional<std::string> CommitOf(const std::string& revision) const;
  absl::Status RememberCommit(const std::string& revision, const std::string& commit) const;

  std::string SnapshotFolder(const std::string& commit) const;
  // Files of the snapshot whose content is there, as "a.json" or "folder/b.json"; sorted.
  std::vector<std::string> SnapshotFiles(const std::string& commit) const;
  bool HasFile(const std::string& commit, const std::string& file) const;

  std::string BlobPath(const std::string& etag) const;
  // Links the snapshot's file to the blob, which is there.
  absl::Status Link(const std::string& commit, const std::string& file,
                    const std::string& etag) const;

  // Held until destroyed. Waits for another process as long as that lives; calls on_wait once
  // before it does.
  class Lock {
   public:
    explicit Lock(int descriptor) : descriptor_(descriptor) {}
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    int descriptor_;
  };
  absl::StatusOr<std::unique_ptr<Lock>> LockBlob(const std::string& etag,
                                                 void (*on_wait)(const std::string& file)) const;

  // Creates the folders that downloads need.
  absl::Status Prepare() const;
  // Bytes free on the cache's file system.
  absl::StatusOr<int64_t> FreeBytes() const;

  const std::string& root() const { return root_; }
  const std::string& repo() const { return repo_; }

 private:
  std::string root_;
  std::string repo_;
  std::string folder_;  // root/models--org--name
};

// A file name from the hub: relative, no "..", no odd characters.
absl::Status CheckHubFileName(std::string_view name);
absl::Status CheckEtag(std::string_view etag);
absl::Status CheckRevision(std::string_view revision);

}  // namespace penstock
