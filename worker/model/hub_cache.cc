#include "worker/model/hub_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "common/base/status.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPlain =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
constexpr size_t kMaxRepoId = 96;

absl::Status FileError(const std::string& path, const char* what, int error) {
  const std::string message = absl::StrFormat("cannot %s %s: %s", what, path, std::strerror(error));
  if (error == ENOSPC || error == EDQUOT) return absl::ResourceExhaustedError(message);
  if (error == EACCES || error == EPERM || error == EROFS) {
    return absl::PermissionDeniedError(message + " (HF_HOME names another cache folder)");
  }
  return absl::FailedPreconditionError(message);
}

absl::Status MakeFolders(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  return error ? FileError(path, "create folder", error.value()) : absl::OkStatus();
}

// Parts between slashes, none of them empty or leading elsewhere.
bool IsSafeRelativePath(std::string_view path) {
  if (path.empty() || path.size() > 512) return false;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f || c == '\\') return false;
  }
  size_t begin = 0;
  while (begin <= path.size()) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return true;
}

std::string FolderName(const std::string& repo) {
  std::string name = "models--" + repo;
  name.replace(name.find('/'), 1, "--");
  return name;
}

}  // namespace

bool IsRepoId(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos || text.size() > kMaxRepoId) return false;
  for (const std::string_view part : {text.substr(0, slash), text.substr(slash + 1)}) {
    if (part.empty() || part.find_first_not_of(kPlain) != std::string_view::npos) return false;
    if (part.front() == '.' || part.front() == '-' || part.back() == '.' || part.back() == '-') {
      return false;
    }
    if (part.find("..") != std::string_view::npos || part.find("--") != std::string_view::npos) {
      return false;
    }
  }
  return true;
}

bool IsCommit(std::string_view text) {
  return text.size() == 40 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

absl::Status CheckHubFileName(std::string_view name) {
  if (IsSafeRelativePath(name)) return absl::OkStatus();
  return InvalidArgument("the hub names a file '%s', which is no safe relative path", name);
}

absl::Status CheckEtag(std::string_view etag) {
  if (!etag.empty() && etag.size() <= 128 && etag.front() != '.' &&
      etag.find_first_not_of(kPlain) == std::string_view::npos) {
    return absl::OkStatus();
  }
  return InvalidArgument("the hub sent the etag '%s', which cannot name a cached file", etag);
}

absl::Status CheckRevision(std::string_view revision) {
  if (IsSafeRelativePath(revision)) return absl::OkStatus();
  return InvalidArgument("--revision is '%s', expected a branch, a tag or a commit", revision);
}

HubCache::HubCache(std::string root, std::string repo)
    : root_(std::move(root)), repo_(std::move(repo)), folder_(root_ + "/" + FolderName(repo_)) {}

std::optional<std::string> HubCache::CommitOf(const std::string& revision) const {
  if (IsCommit(revision)) return revision;
  std::ifstream file(folder_ + "/refs/" + revision);
  std::string commit;
  file >> commit;
  return IsCommit(commit) ? std::optional<std::string>(commit) : std::nullopt;
}

absl::Status HubCache::RememberCommit(const std::string& revision,
                                      const std::string& commit) const {
  if (revision == commit) return absl::OkStatus();
  const std::string path = folder_ + "/refs/" + revision;
  RETURN_IF_ERROR(MakeFolders(fs::path(path).parent_path().string()));
  // Another process may read it at any moment.
  const std::string temporary = absl::StrFormat("%s.%d.tmp", path, getpid());
  std::ofstream(temporary) << commit;
  if (rename(temporary.c_str(), path.c_str()) != 0) return FileError(path, "write", errno);
  return absl::OkStatus();
}

std::string HubCache::SnapshotFolder(const std::string& commit) const {
  return folder_ + "/snapshots/" + commit;
}

std::vector<std::string> HubCache::SnapshotFiles(const std::string& commit) const {
  std::vector<std::string> files;
  const std::string folder = SnapshotFolder(commit);
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (fs::is_regular_file(it->path(), ignored)) {  // follows the link
      files.push_back(it->path().string().substr(folder.size() + 1));
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool HubCache::HasFile(const std::string& commit, const std::string& file) const {
  std::error_code error;
  return fs::is_regular_file(SnapshotFolder(commit) + "/" + file, error);
}

std::string HubCache::BlobPath(const std::string& etag) const { return folder_ + "/blobs/" + etag; }

absl::Status HubCache::Link(const std::string& commit, const std::string& file,
                            const std::string& etag) const {
  const std::string path = SnapshotFolder(commit) + "/" + file;
  RETURN_IF_ERROR(MakeFolders(fs::path(path).parent_path().string()));
  std::string target = "../../";
  for (const char c : file) {
    if (c == '/') target += "../";
  }
  target += "blobs/" + etag;
  // By rename, so that no moment is without the file and a stale link is replaced.
  const std::string temporary = absl::StrFormat("%s.%d.tmp", path, getpid());
  unlink(temporary.c_str());
  if (symlink(target.c_str(), temporary.c_str()) != 0 ||
      rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(temporary.c_str());
    return FileError(path, "link", error);
  }
  return absl::OkStatus();
}

HubCache::Lock::~Lock() { close(descriptor_); }

absl::StatusOr<std::unique_ptr<HubCache::Lock>> HubCache::LockBlob(
    const std::string& etag, void (*on_wait)(const std::string& file)) const {
  const std::string folder = root_ + "/.locks/" + FolderName(repo_);
  RETURN_IF_ERROR(MakeFolders(folder));
  const std::string path = folder + "/" + etag + ".lock";
  while (true) {
    const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664);
    if (descriptor < 0) return FileError(path, "open", errno);
    auto lock = std::make_unique<Lock>(descriptor);
    if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return FileError(path, "lock", errno);
      on_wait(path);
      while (flock(descriptor, LOCK_EX) != 0) {
        if (errno != EINTR) return FileError(path, "lock", errno);
      }
    }
    // Some versions of filelock remove the file when they let go: then it is no lock any more.
    struct stat ours {};
    struct stat named {};
    if (fstat(descriptor, &ours) == 0 && stat(path.c_str(), &named) == 0 &&
        ours.st_ino == named.st_ino && ours.st_dev == named.st_dev) {
      return lock;
    }
  }
}

absl::Status HubCache::Prepare() const {
  RETURN_IF_ERROR(MakeFolders(folder_ + "/blobs"));
  RETURN_IF_ERROR(MakeFolders(folder_ + "/refs"));
  return MakeFolders(folder_ + "/snapshots");
}

absl::StatusOr<int64_t> HubCache::FreeBytes() const {
  struct statvfs info {};
  if (statvfs(folder_.c_str(), &info) != 0) return FileError(folder_, "look at", errno);
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

}  // namespace penstock
