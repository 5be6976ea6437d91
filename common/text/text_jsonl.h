#pragma once

// The text layer as a filter: one JSON object a line in, one out (`penstock text --jsonl`).
//   {"op":"load","path":P}                                      -> {"ok":true}
//   {"op":"encode","text":T,"add_special":B[,"plain":true]}     -> {"ids":[...]}
//   {"op":"decode","ids":[...],"skip_special":B}                -> {"text":T}
//   {"op":"stream","ids":[...][,"skip_special":B]}              -> {"deltas":[...]}
// Every failure is {"error":"..."} on its line. Runs until the input ends.

#include <functional>
#include <iosfwd>

#include "common/json/json.h"

namespace penstock {

// Answers the lines that have a "template" member; absent: they are an error.
using TemplateOp = std::function<Json(const Json& request)>;

void RunTextJsonl(std::istream& in, std::ostream& out, const TemplateOp& template_op = nullptr);

}  // namespace penstock
