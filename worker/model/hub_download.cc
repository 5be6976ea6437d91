#include "worker/model/hub_download.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "common/base/log.h"
#include "common/base/sha256.h"
#include "common/base/status.h"

namespace penstock {
namespace {

// Names of blobs of large files are their sha256; of small ones git's sha1.
bool IsSha256(std::string_view etag) {
  return etag.size() == 64 && etag.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

int64_t FileSize(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? static_cast<int64_t>(info.st_size) : -1;
}

// The file while it arrives, with the hash of what it holds.
class PartialFile {
 public:
  PartialFile(std::string path, const HubFile& file) : path_(std::move(path)), file_(file) {}
  ~PartialFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  // What an earlier attempt left is kept, unless it cannot be a beginning of the file.
  absl::Status Open() {
    descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor_ < 0) return Error("open");
    size_ = FileSize(path_);
    if (size_ > file_.size) return Truncate();
    return HashExisting();
  }

  absl::Status Truncate() {
    if (ftruncate(descriptor_, 0) != 0 || lseek(descriptor_, 0, SEEK_SET) != 0) {
      return Error("truncate");
    }
    size_ = 0;
    hash_.Restart();
    return absl::OkStatus();
  }

  absl::Status Append(std::string_view piece) {
    if (static_cast<int64_t>(piece.size()) > file_.size - size_) {
      return Unavailable("%s: more than the announced %d bytes arrive", file_.name, file_.size);
    }
    hash_.Update(piece.data(), piece.size());
    size_ += static_cast<int64_t>(piece.size());
    while (!piece.empty()) {
      const ssize_t written = write(descriptor_, piece.data(), piece.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return Error("write");
      piece.remove_prefix(static_cast<size_t>(written));
    }
    return absl::OkStatus();
  }

  // Size and sha256 are the announced ones; a file with a wrong hash is removed.
  absl::Status Check() {
    if (size_ != file_.size) {
      return Unavailable("%s: %d of %d bytes arrived", file_.name, size_, file_.size);
    }
    if (!IsSha256(file_.etag)) return absl::OkStatus();
    const std::string actual = HexEncode(hash_.Finish());
    hash_.Restart();
    if (actual == file_.etag) return absl::OkStatus();
    unlink(path_.c_str());
    return absl::DataLossError(
        absl::StrFormat("%s is damaged: its sha256 is %s, the hub announced %s; the download was "
                        "removed",
                        file_.name, actual, file_.etag));
  }

  absl::Status MoveTo(const std::string& blob) {
    if (fsync(descriptor_) != 0) return Error("flush");
    if (rename(path_.c_str(), blob.c_str()) != 0) return Error("rename");
    return absl::OkStatus();
  }

  int64_t size() const { return size_; }

 private:
  absl::Status HashExisting() {
    std::vector<char> buffer(size_t{1} << 20);
    int64_t hashed = 0;
    while (hashed < size_) {
      const ssize_t got = read(descriptor_, buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Error("read");
      if (got == 0) break;
      hash_.Update(buffer.data(), static_cast<size_t>(got));
      hashed += got;
    }
    size_ = hashed;
    return absl::OkStatus();
  }

  absl::Status Error(const char* what) const {
    const int error = errno;
    const std::string message =
        absl::StrFormat("cannot %s %s: %s", what, path_, std::strerror(error));
    if (error == ENOSPC || error == EDQUOT) {
      return absl::ResourceExhaustedError(
          message +
          "; free some space or set HF_HOME to a larger disk, then start again: the "
          "download resumes");
    }
    return absl::FailedPreconditionError(message);
  }

  const std::string path_;
  const HubFile& file_;
  int descriptor_ = -1;
  int64_t size_ = 0;
  Sha256Stream hash_;
};

absl::Status Fetch(const HubApi& api, const std::string& commit, const HubFile& file,
                   PartialFile* partial, HubProgress* progress) {
  int64_t before = partial->size();
  const HubApi::Sink sink{.start =
                              [&](bool at_offset) {
                                if (at_offset) return absl::OkStatus();
                                progress->RestartFile();
                                return partial->Truncate();
                              },
                          .write =
                              [&](std::string_view piece) {
                                progress->Advance(static_cast<int64_t>(piece.size()));
                                return partial->Append(piece);
                              }};
  return api.Retry(
      [&] {
        before = partial->size();
        if (before == file.size) return absl::OkStatus();
        RETURN_IF_ERROR(api.Download(commit, file.name, before, sink));
        if (partial->size() == file.size) return absl::OkStatus();
        return Unavailable("%s: %d of %d bytes arrived", file.name, partial->size(), file.size);
      },
      [&] { return partial->size() > before; });
}

}  // namespace

int64_t MissingBytes(const HubCache& cache, const HubFile& file) {
  const std::string blob = cache.BlobPath(file.etag);
  if (FileSize(blob) == file.size) return 0;
  const int64_t partial = FileSize(blob + ".incomplete");
  return partial > 0 && partial <= file.size ? file.size - partial : file.size;
}

absl::Status DownloadFile(const HubApi& api, const HubCache& cache, const std::string& commit,
                          const HubFile& file, HubProgress* progress) {
  const std::string blob = cache.BlobPath(file.etag);
  ASSIGN_OR_RETURN(const std::unique_ptr<HubCache::Lock> lock,
                   cache.LockBlob(file.etag, [](const std::string& path) {
                     LogInfo("another process downloads the same file: waiting for %s", path);
                   }));
  if (FileSize(blob) == file.size) {  // it came while we waited, or with another snapshot
    progress->StartFile(file.name, file.size, file.size);
    return cache.Link(commit, file.name, file.etag);
  }
  PartialFile partial(blob + ".incomplete", file);
  RETURN_IF_ERROR(partial.Open());
  progress->StartFile(file.name, file.size, partial.size());
  RETURN_IF_ERROR(Fetch(api, commit, file, &partial, progress));
  RETURN_IF_ERROR(partial.Check());
  RETURN_IF_ERROR(partial.MoveTo(blob));
  progress->FinishFile();
  return cache.Link(commit, file.name, file.etag);
}

}  // namespace penstock
