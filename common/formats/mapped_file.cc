#include "common/formats/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/base/status.h"

namespace penstock {
namespace {

constexpr std::string_view kLfsPointer = "version https://git-lfs.github.com/spec";

absl::Status OpenError(const std::string& path, int error) {
  const std::string text = absl::StrFormat("cannot open %s: %s", path, std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(text);
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(text);
  return absl::InternalError(text);
}

}  // namespace

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return OpenError(path, errno);
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return InvalidArgument("%s is not a regular file", path);
  }
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) {
    close(fd);
    return InvalidArgument("%s is empty: an interrupted download? Fetch it again", path);
  }
  void* address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  close(fd);
  if (address == MAP_FAILED) return Internal("cannot map %s: %s", path, std::strerror(error));
  std::unique_ptr<MappedFile> file(
      new MappedFile(path, {static_cast<const std::byte*>(address), size}));
  if (file->text().starts_with(kLfsPointer)) {
    return InvalidArgument(
        "%s is a git-lfs pointer of %d bytes, not the file itself: run 'git lfs pull' or download "
        "it",
        path, size);
  }
  return file;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> file, MappedFile::Open(path));
  if (file->bytes().size() > max_bytes) {
    return InvalidArgument("%s has %d bytes, more than the %d allowed", path, file->bytes().size(),
                           max_bytes);
  }
  return std::string(file->text());
}

}  // namespace penstock
