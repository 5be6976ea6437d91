#include "common/text/regex.h"

#include <oniguruma.h>

#include <optional>

#include "common/base/status.h"
#include "common/text/unicode/unicode.h"
#include "common/text/utf8.h"

namespace penstock {
namespace {

// Steps back that one match may take: Oniguruma's own default, which is what the reference runs
// under. About half a second.
constexpr unsigned long kRetryLimit = 10'000'000;
constexpr size_t kMaxPatternBytes = 64 << 10;
constexpr size_t kMaxExpandedBytes = 4 << 20;
constexpr unsigned int kParseDepth = 250;

struct Property {
  std::string_view name;
  uint32_t flags;
};
constexpr Property kProperties[] = {
    {"L", unicode::kLetter},       {"Letter", unicode::kLetter},
    {"Lu", unicode::kUpper},       {"Ll", unicode::kLower},
    {"Lt", unicode::kTitle},       {"Lm", unicode::kModifierLetter},
    {"Lo", unicode::kOtherLetter}, {"M", unicode::kMark},
    {"Mark", unicode::kMark},      {"N", unicode::kNumber},
    {"Number", unicode::kNumber},  {"Nd", unicode::kDecimalNumber},
    {"P", unicode::kPunctuation},  {"Punctuation", unicode::kPunctuation},
    {"S", unicode::kSymbol},       {"Symbol", unicode::kSymbol},
    {"Han", unicode::kHan},
};

// The inside of a bracket expression of every character with one of these flags.
std::string ClassOf(uint32_t flags) {
  std::string out;
  const auto append = [&out](uint32_t first, uint32_t last) {
    out += absl::StrFormat("\\x{%x}", first);
    if (last > first) out += absl::StrFormat("-\\x{%x}", last);
  };
  uint32_t begin = 0;
  bool open = false;
  for (size_t i = 0; i < unicode::kFlagRangesSize; i += 2) {
    const bool has = (unicode::kFlagRanges[i + 1] & flags) != 0;
    if (has == open) continue;
    if (open) append(begin, unicode::kFlagRanges[i] - 1);
    open = has;
    begin = unicode::kFlagRanges[i];
  }
  if (open) append(begin, 0x10FFFF);
  return out;
}

// A property escape at pattern[pos] (a backslash): its flags, length and sense.
struct Escape {
  uint32_t flags = 0;
  size_t length = 0;
  bool negated = false;
};

std::optional<Escape> PropertyEscape(std::string_view pattern, size_t pos) {
  if (pos + 1 >= pattern.size()) return std::nullopt;
  switch (pattern[pos + 1]) {
    case 'w':
      return Escape{unicode::kRegexWord, 2, false};
    case 'W':
      return Escape{unicode::kRegexWord, 2, true};
    case 'd':
      return Escape{unicode::kDecimalNumber, 2, false};
    case 'D':
      return Escape{unicode::kDecimalNumber, 2, true};
    case 'p':
    case 'P':
      break;
    default:
      return std::nullopt;
  }
  const size_t close = pattern.find('}', pos);
  if (pos + 2 >= pattern.size() || pattern[pos + 2] != '{' || close == std::string_view::npos) {
    return std::nullopt;
  }
  std::string_view name = pattern.substr(pos + 3, close - pos - 3);
  bool negated = pattern[pos + 1] == 'P';
  if (name.starts_with('^')) {
    negated = !negated;
    name.remove_prefix(1);
  }
  for (const Property& property : kProperties) {
    if (property.name == name) return Escape{property.flags, close + 1 - pos, negated};
  }
  return std::nullopt;
}

}  // namespace

std::string WithUnicode16(std::string_view pattern) {
  std::string out;
  int depth = 0;  // of bracket expressions
  for (size_t i = 0; i < pattern.size() && out.size() <= kMaxExpandedBytes;) {
    if (pattern[i] == '\\') {
      const std::optional<Escape> escape = PropertyEscape(pattern, i);
      if (escape.has_value()) {
        const bool bare = depth > 0 && !escape->negated;
        out += bare ? "" : escape->negated ? "[^" : "[";
        out += ClassOf(escape->flags);
        out += bare ? "" : "]";
        i += escape->length;
      } else {
        out += pattern.substr(i, 2);
        i += 2;
      }
      continue;
    }
    if (pattern[i] == '[') ++depth;
    if (pattern[i] == ']' && depth > 0) --depth;
    out += pattern[i++];
  }
  return out;
}

absl::StatusOr<std::unique_ptr<const Regex>> Regex::Create(const std::string& pattern) {
  if (pattern.size() > kMaxPatternBytes || !IsValidUtf8(pattern)) {
    return InvalidArgument("regular expression of %d bytes: must be UTF-8 of at most %d",
                           pattern.size(), kMaxPatternBytes);
  }
  const std::string expanded = WithUnicode16(pattern);
  if (expanded.size() > kMaxExpandedBytes) {
    return InvalidArgument("regular expression %s has too many property classes", pattern);
  }
  static const int initialised = [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    const int result = onig_initialize(encodings, 1);
    onig_set_parse_depth_limit(kParseDepth);
    return result;
  }();
  if (initialised != ONIG_NORMAL) return Internal("Oniguruma does not start: %d", initialised);
  const auto* begin = reinterpret_cast<const OnigUChar*>(expanded.data());
  regex_t* regex = nullptr;
  OnigErrorInfo info;
  const int code = onig_new(&regex, begin, begin + expanded.size(), ONIG_OPTION_NONE,
                            ONIG_ENCODING_UTF8, ONIG_SYNTAX_DEFAULT, &info);
  if (code != ONIG_NORMAL) {
    OnigUChar message[ONIG_MAX_ERROR_MESSAGE_LEN];
    onig_error_code_to_str(message, code, &info);
    return InvalidArgument("regular expression %s: %s", pattern,
                           reinterpret_cast<const char*>(message));
  }
  return std::unique_ptr<const Regex>(new Regex(regex));
}

Regex::~Regex() { onig_free(regex_); }

absl::Status Regex::FindAll(std::string_view text,
                            const std::function<absl::Status(Span match)>& visit) const {
  if (text.empty()) return absl::OkStatus();
  struct Scratch {
    OnigRegion* region = onig_region_new();
    OnigMatchParam* param = onig_new_match_param();
    ~Scratch() {
      onig_region_free(region, 1);
      onig_free_match_param(param);
    }
  } scratch;
  onig_initialize_match_param(scratch.param);
  onig_set_retry_limit_in_match_of_match_param(scratch.param, kRetryLimit);
  onig_set_retry_limit_in_search_of_match_param(scratch.param, kRetryLimit);
  const auto* begin = reinterpret_cast<const OnigUChar*>(text.data());
  const auto* end = begin + text.size();
  size_t pos = 0;
  std::optional<size_t> last_end;
  while (pos <= text.size()) {
    const int code = onig_search_with_param(regex_, begin, end, begin + pos, end, scratch.region,
                                            ONIG_OPTION_NONE, scratch.param);
    if (code == ONIG_MISMATCH) break;
    if (code < 0) {
      OnigUChar message[ONIG_MAX_ERROR_MESSAGE_LEN];
      onig_error_code_to_str(message, code);
      return InvalidArgument("the tokenizer's pattern gave up on this text: %s",
                             reinterpret_cast<const char*>(message));
    }
    const Span match{static_cast<size_t>(scratch.region->beg[0]),
                     static_cast<size_t>(scratch.region->end[0])};
    if (match.first == match.second && last_end == match.second) {
      pos += pos < text.size() ? Utf8Length(text[pos]) : 1;
      continue;
    }
    pos = match.second;
    last_end = match.second;
    RETURN_IF_ERROR(visit(match));
  }
  return absl::OkStatus();
}

}  // namespace penstock
