#include "router/api/cors.h"

#include <algorithm>

namespace penstock {
namespace {

bool Lists(const std::vector<std::string>& list, std::string_view item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

std::string Join(const std::vector<std::string>& items) {
  std::string out;
  for (const std::string& item : items) {
    if (!out.empty()) out += ", ";
    out += item;
  }
  return out;
}

}  // namespace

HttpHeaders CorsHeaders(const CorsOptions& options, const HttpRequest& request) {
  const std::string origin(request.header("origin"));
  if (options.origins.empty() || origin.empty()) return {};
  const bool any = Lists(options.origins, "*");
  if (!any && !Lists(options.origins, origin)) return {{"Vary", "Origin"}};
  HttpHeaders headers;
  // With credentials a browser does not take the star.
  const bool star = any && !options.allow_credentials;
  headers.emplace_back("Access-Control-Allow-Origin", star ? "*" : origin);
  if (!star) headers.emplace_back("Vary", "Origin");
  if (options.allow_credentials) {
    headers.emplace_back("Access-Control-Allow-Credentials", "true");
  }
  headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
  return headers;
}

HttpResponse PreflightResponse(const CorsOptions& options, const HttpRequest& request) {
  HttpResponse response;
  response.status = 204;
  response.headers = CorsHeaders(options, request);
  response.headers.emplace_back("Allow", "GET, HEAD, POST, OPTIONS");
  const bool allowed =
      std::any_of(response.headers.begin(), response.headers.end(),
                  [](const auto& header) { return header.first == "Access-Control-Allow-Origin"; });
  if (!allowed) return response;
  response.headers.emplace_back("Access-Control-Allow-Methods", Lists(options.methods, "*")
                                                                    ? "GET, HEAD, POST, OPTIONS"
                                                                    : Join(options.methods));
  // A star would not cover Authorization: what is asked for is listed.
  std::string asked(request.header("access-control-request-headers"));
  if (asked.empty()) asked = "authorization, content-type";
  response.headers.emplace_back("Access-Control-Allow-Headers",
                                Lists(options.headers, "*") ? asked : Join(options.headers));
  response.headers.emplace_back("Access-Control-Max-Age", "600");
  return response;
}

}  // namespace penstock
