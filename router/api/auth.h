#pragma once

// Who may ask what: bearer keys, and the few paths that need none. Immutable, any thread.

#include <string>
#include <string_view>
#include <vector>

#include "common/base/sha256.h"
#include "router/http/http.h"

namespace penstock {

class Auth {
 public:
  // No keys: everything is open.
  Auth(const std::vector<std::string>& keys, bool metrics_open);
  // path: normalised, without the root path. Everything that is not listed as open needs a key.
  bool Allows(const HttpRequest& request, std::string_view path) const;

 private:
  bool IsKey(std::string_view key) const;

  std::vector<Sha256Digest> digests_;
  const bool metrics_open_;
};

}  // namespace penstock
