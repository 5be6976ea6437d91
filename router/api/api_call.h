#pragma once

// One call while it is being answered. For api_server's own files.

#include <memory>
#include <string>
#include <string_view>

#include "router/api/api_server.h"

namespace penstock {

struct ApiServer::Call {
  std::shared_ptr<HttpExchange> exchange;
  std::string path;        // without the root path
  std::string_view route;  // of the route table, for metrics
  bool logged = true;
  std::string request_id;
  HttpHeaders headers;  // of every answer
  bool gone = false;    // the client left; set on the io thread
};

}  // namespace penstock
