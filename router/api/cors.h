#pragma once

// Cross-origin headers for browsers. Off unless origins are configured. Pure, any thread.

#include "router/api/api_options.h"
#include "router/http/http.h"

namespace penstock {

// What every answer to this request carries, errors too.
HttpHeaders CorsHeaders(const CorsOptions& options, const HttpRequest& request);

// The answer to OPTIONS: 204, with the preflight's headers when the origin may call.
HttpResponse PreflightResponse(const CorsOptions& options, const HttpRequest& request);

}  // namespace penstock
