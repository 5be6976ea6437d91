#pragma once

// Builds little-endian files byte by byte, right or wrong.

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace penstock {

class Bytes {
 public:
  template <typename T>
  Bytes& Put(T value) {
    data_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    return *this;
  }
  Bytes& Raw(std::string_view text) {
    data_ += text;
    return *this;
  }
  // GGUF's string: u64 length, then the bytes.
  Bytes& String(std::string_view text) { return Put(uint64_t{text.size()}).Raw(text); }
  Bytes& PadTo(size_t alignment) {
    while (data_.size() % alignment != 0) data_.push_back('\0');
    return *this;
  }
  Bytes& Fill(size_t count, char value = 1) {
    data_.append(count, value);
    return *this;
  }
  const std::string& str() const { return data_; }

 private:
  std::string data_;
};

// A folder of its own that goes away with the object.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = std::filesystem::temp_directory_path() / "penstock-formats-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path() const { return path_; }
  std::string Write(std::string_view name, std::string_view content) const {
    const std::string path = path_ + "/" + std::string(name);
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

 private:
  std::string path_;
};

}  // namespace penstock
