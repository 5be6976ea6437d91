#include "router/api/auth.h"

#include <algorithm>

namespace penstock {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

// The key of "Bearer KEY" (the scheme in any case), or empty.
std::string_view BearerKey(std::string_view header) {
  constexpr std::string_view kScheme = "bearer ";
  if (header.size() <= kScheme.size()) return {};
  const bool bearer = std::equal(kScheme.begin(), kScheme.end(), header.begin(),
                                 [](char a, char b) { return a == Lower(b); });
  if (!bearer) return {};
  header.remove_prefix(kScheme.size());
  while (!header.empty() && header.front() == ' ') header.remove_prefix(1);
  return header;
}

}  // namespace

Auth::Auth(const std::vector<std::string>& keys, bool metrics_open) : metrics_open_(metrics_open) {
  for (const std::string& key : keys) digests_.push_back(Sha256(key));
}

// The time does not depend on how much of a key is right, nor on which one it is.
bool Auth::IsKey(std::string_view key) const {
  const Sha256Digest digest = Sha256(key);
  bool found = false;
  for (const Sha256Digest& known : digests_) {
    unsigned difference = 0;
    for (size_t i = 0; i < known.size(); ++i) {
      difference |= static_cast<unsigned>(known[i] ^ digest[i]);
    }
    found |= difference == 0;
  }
  return found;
}

bool Auth::Allows(const HttpRequest& request, std::string_view path) const {
  if (digests_.empty()) return true;
  if (request.method == "OPTIONS" || path == "/health" || path == "/ready") return true;
  if (path == "/metrics" && metrics_open_) return true;
  const std::string_view key = BearerKey(request.header("authorization"));
  return !key.empty() && IsKey(key);
}

}  // namespace penstock
