#include "common/text/pre_tokenizer.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "common/base/status.h"
#include "common/text/byte_level.h"
#include "common/text/regex.h"
#include "common/text/scanners.h"
#include "common/text/unicode/unicode.h"
#include "common/text/utf8.h"

namespace penstock {

class PreTokenizerOp {
 public:
  virtual ~PreTokenizerOp() = default;
  virtual absl::Status Apply(const PreToken& piece, const PreTokenSink& next) const = 0;
};

namespace {

using Kind = PreTokenizerStep::Kind;

absl::Status Hand(const PreToken& piece, size_t begin, size_t end, const PreTokenSink& next) {
  if (begin == end) return absl::OkStatus();
  return next({piece.text.substr(begin, end - begin), piece.at_start && begin == 0});
}

// Turns a row of parts, each a match of the delimiter or not, into pieces, one part late.
class Splitter {
 public:
  Splitter(SplitBehavior behavior, const PreToken& piece, const PreTokenSink& next)
      : behavior_(behavior), piece_(piece), next_(next) {}

  absl::Status Add(size_t begin, size_t end, bool match) {
    const bool first = !any_;
    any_ = true;
    const bool joins = !first && [&] {
      switch (behavior_) {
        case SplitBehavior::kContiguous:
          return match == last_match_;
        case SplitBehavior::kMergedWithPrevious:
          return match && !last_match_;
        case SplitBehavior::kMergedWithNext:
          return !match && last_match_;
        default:
          return false;
      }
    }();
    const bool drop = behavior_ == SplitBehavior::kRemoved && match;
    if (joins) {
      end_ = end;
    } else {
      RETURN_IF_ERROR(Finish());
      begin_ = begin;
      end_ = drop ? begin : end;
    }
    last_match_ = match;
    return absl::OkStatus();
  }
  absl::Status Finish() { return Hand(piece_, begin_, end_, next_); }

 private:
  SplitBehavior behavior_;
  const PreToken& piece_;
  const PreTokenSink& next_;
  bool any_ = false;
  bool last_match_ = false;
  size_t begin_ = 0, end_ = 0;
};

// Splits at what a finder finds.
class SplitOp : public PreTokenizerOp {
 public:
  SplitOp(SplitBehavior behavior, bool invert) : behavior_(behavior), invert_(invert) {}
  absl::Status Apply(const PreToken& piece, const PreTokenSink& next) const override {
    Splitter splitter(behavior_, piece, next);
    size_t done = 0;
    const absl::Status found = Find(piece.text, [&](Span match) -> absl::Status {
      if (match.first > done) RETURN_IF_ERROR(splitter.Add(done, match.first, invert_));
      done = match.second;
      return splitter.Add(match.first, match.second, !invert_);
    });
    RETURN_IF_ERROR(found);
    if (done < piece.text.size()) {
      RETURN_IF_ERROR(splitter.Add(done, piece.text.size(), invert_));
    }
    return splitter.Finish();
  }

 protected:
  using Visit = std::function<absl::Status(Span)>;
  virtual absl::Status Find(std::string_view text, const Visit& visit) const = 0;

 private:
  SplitBehavior behavior_;
  bool invert_;
};

class RegexSplitOp : public SplitOp {
 public:
  RegexSplitOp(std::unique_ptr<const Regex> regex, SplitBehavior behavior, bool invert)
      : SplitOp(behavior, invert), regex_(std::move(regex)) {}

 protected:
  absl::Status Find(std::string_view text, const Visit& visit) const override {
    return regex_->FindAll(text, visit);
  }

 private:
  std::unique_ptr<const Regex> regex_;
};

class LiteralSplitOp : public SplitOp {
 public:
  LiteralSplitOp(std::string literal, SplitBehavior behavior, bool invert)
      : SplitOp(behavior, invert), literal_(std::move(literal)) {}

 protected:
  absl::Status Find(std::string_view text, const Visit& visit) const override {
    for (size_t at = text.find(literal_); at != std::string_view::npos;
         at = text.find(literal_, at + literal_.size())) {
      RETURN_IF_ERROR(visit({at, at + literal_.size()}));
    }
    return absl::OkStatus();
  }

 private:
  std::string literal_;
};

// Every character that a predicate takes is a match of its own, or every run of them.
template <typename Predicate>
class CharSplitOp : public SplitOp {
 public:
  CharSplitOp(Predicate predicate, bool runs, SplitBehavior behavior)
      : SplitOp(behavior, false), predicate_(std::move(predicate)), runs_(runs) {}

 protected:
  absl::Status Find(std::string_view text, const Visit& visit) const override {
    for (size_t pos = 0; pos < text.size();) {
      const size_t begin = pos;
      if (!predicate_(NextChar(text, &pos))) continue;
      size_t end = pos;
      while (runs_ && pos < text.size() && predicate_(NextChar(text, &pos))) end = pos;
      RETURN_IF_ERROR(visit({begin, end}));
      pos = end;
    }
    return absl::OkStatus();
  }

 private:
  Predicate predicate_;
  bool runs_;
};
template <typename Predicate>
std::unique_ptr<const PreTokenizerOp> CharSplit(Predicate predicate, SplitBehavior behavior,
                                                bool runs = false) {
  return std::make_unique<CharSplitOp<Predicate>>(std::move(predicate), runs, behavior);
}

class ScannerOp : public PreTokenizerOp {
 public:
  explicit ScannerOp(const Scanner& scanner) : scanner_(scanner) {}
  absl::Status Apply(const PreToken& piece, const PreTokenSink& next) const override {
    for (size_t pos = 0; pos < piece.text.size();) {
      const size_t end = scanner_.Next(piece.text, pos);
      RETURN_IF_ERROR(Hand(piece, pos, end, next));
      pos = end;
    }
    return absl::OkStatus();
  }

 private:
  const Scanner& scanner_;
};

class PrefixSpaceOp : public PreTokenizerOp {
 public:
  absl::Status Apply(const PreToken& piece, const PreTokenSink& next) const override {
    if (piece.text.empty() || piece.text[0] == ' ') return next(piece);
    std::string text = " ";
    text += piece.text;
    return next({text, piece.at_start});
  }
};

class ByteAlphabetOp : public PreTokenizerOp {
 public:
  absl::Status Apply(const PreToken& piece, const PreTokenSink& next) const override {
    std::string text;
    text.reserve(piece.text.size() * 2);
    ByteAlphabet::Get().AppendEncoded(piece.text, &text);
    return next({text, piece.at_start});
  }
};

class MetaspaceOp : public PreTokenizerOp {
 public:
  explicit MetaspaceOp(const PreTokenizerStep& step)
      : replacement_(step.replacement), scheme_(step.prepend_scheme), split_(step.split) {}
  absl::Status Apply(const PreToken& piece, const PreTokenSink& next) const override {
    std::string text;
    text.reserve(piece.text.size() + piece.text.size() / 2 + 8);
    for (const char c : piece.text) {
      if (c == ' ') {
        text += replacement_;
      } else {
        text += c;
      }
    }
    const bool prepend = scheme_ == PreTokenizerStep::Prepend::kAlways ||
                         (scheme_ == PreTokenizerStep::Prepend::kFirst && piece.at_start);
    if (prepend && !text.empty() && !text.starts_with(replacement_)) text.insert(0, replacement_);
    const PreToken whole{text, piece.at_start};
    if (!split_) return text.empty() ? absl::OkStatus() : next(whole);
    // A replacement goes with what follows it; of a row of them each but the last stands alone.
    size_t begin = 0;
    for (size_t at = text.find(replacement_); at != std::string::npos;
         at = text.find(replacement_, at + replacement_.size())) {
      RETURN_IF_ERROR(Hand(whole, begin, at, next));
      begin = at;
    }
    return Hand(whole, begin, text.size(), next);
  }

 private:
  std::string replacement_;
  PreTokenizerStep::Prepend scheme_;
  bool split_;
};

class WhitespaceOp : public PreTokenizerOp {
 public:
  absl::Status Apply(const PreToken& piece, const PreTokenSink& next) const override {
    enum Run { kNone, kWord, kOther };
    Run kind = kNone;
    size_t begin = 0;
    for (size_t pos = 0; pos < piece.text.size();) {
      const size_t at = pos;
      const char32_t c = NextChar(piece.text, &pos);
      const Run now = unicode::Is(c, unicode::kRustWord) ? kWord
                      : unicode::Is(c, unicode::kSpace)  ? kNone
                                                         : kOther;
      if (now == kind) continue;
      if (kind != kNone) RETURN_IF_ERROR(Hand(piece, begin, at, next));
      begin = at;
      kind = now;
    }
    return kind == kNone ? absl::OkStatus() : Hand(piece, begin, piece.text.size(), next);
  }
};

class ScriptsOp : public PreTokenizerOp {
 public:
  // As the reference has it: nothing is handed out before the first character with a script.
  absl::Status Apply(const PreToken& piece, const PreTokenSink& next) const override {
    std::optional<uint32_t> last;
    std::optional<size_t> begin;
    for (size_t pos = 0; pos < piece.text.size();) {
      const size_t at = pos;
      const char32_t c = NextChar(piece.text, &pos);
      uint32_t script = c == 0x30FC ? unicode::kScriptHan : unicode::Script(c);
      if (c == ' ' || script == 0) continue;  // goes with any script
      if (script == unicode::kScriptHiragana || script == unicode::kScriptKatakana) {
        script = unicode::kScriptHan;
      }
      if (last != script) {
        if (begin.has_value()) RETURN_IF_ERROR(Hand(piece, *begin, at, next));
        begin = at;
      }
      last = script;
    }
    return begin.has_value() ? Hand(piece, *begin, piece.text.size(), next) : absl::OkStatus();
  }
};

class FixedLengthOp : public PreTokenizerOp {
 public:
  explicit FixedLengthOp(int64_t length) : length_(length) {}
  absl::Status Apply(const PreToken& piece, const PreTokenSink& next) const override {
    size_t begin = 0;
    int64_t count = 0;
    for (size_t pos = 0; pos < piece.text.size();) {
      NextChar(piece.text, &pos);
      if (++count < length_) continue;
      RETURN_IF_ERROR(Hand(piece, begin, pos, next));
      begin = pos;
      count = 0;
    }
    return Hand(piece, begin, piece.text.size(), next);
  }

 private:
  int64_t length_;
};

bool IsSpace(char32_t c) { return unicode::Is(c, unicode::kSpace); }
bool IsPunctuation(char32_t c) { return unicode::Is(c, unicode::kBertPunctuation); }
bool IsNumeric(char32_t c) { return unicode::Is(c, unicode::kRustNumeric); }

using Ops = std::vector<std::unique_ptr<const PreTokenizerOp>>;

absl::Status AddSplit(const PreTokenizerStep& step, Ops* ops) {
  if (!step.pattern.is_regex && !step.pattern.text.empty()) {
    ops->push_back(std::make_unique<LiteralSplitOp>(step.pattern.text, step.behavior, step.invert));
    return absl::OkStatus();
  }
  const Scanner* scanner = step.pattern.is_regex ? Scanner::ForPattern(step.pattern.text) : nullptr;
  // Matches and gaps isolated, or gaps removed where there are none.
  if (scanner != nullptr &&
      (step.behavior == SplitBehavior::kIsolated ||
       (step.behavior == SplitBehavior::kRemoved && step.invert && !scanner->leaves_gaps()))) {
    ops->push_back(std::make_unique<ScannerOp>(*scanner));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(auto regex, Regex::Create(step.pattern.text));
  ops->push_back(std::make_unique<RegexSplitOp>(std::move(regex), step.behavior, step.invert));
  return absl::OkStatus();
}

absl::Status AddStep(const PreTokenizerStep& step, bool raw_bytes, Ops* ops) {
  switch (step.kind) {
    case Kind::kSplit:
      return AddSplit(step, ops);
    case Kind::kByteLevel:
      if (step.add_prefix_space) ops->push_back(std::make_unique<PrefixSpaceOp>());
      if (step.use_regex) ops->push_back(std::make_unique<ScannerOp>(Scanner::Gpt2()));
      if (!raw_bytes) ops->push_back(std::make_unique<ByteAlphabetOp>());
      return absl::OkStatus();
    case Kind::kMetaspace:
      if (step.replacement.empty() || !IsValidUtf8(step.replacement)) {
        return InvalidArgument("Metaspace: replacement must be one character");
      }
      ops->push_back(std::make_unique<MetaspaceOp>(step));
      return absl::OkStatus();
    case Kind::kDigits:
      ops->push_back(CharSplit(IsNumeric, step.individual_digits ? SplitBehavior::kIsolated
                                                                 : SplitBehavior::kContiguous));
      return absl::OkStatus();
    case Kind::kPunctuation:
      ops->push_back(CharSplit(IsPunctuation, step.behavior));
      return absl::OkStatus();
    case Kind::kBert:
      ops->push_back(CharSplit(IsSpace, SplitBehavior::kRemoved));
      ops->push_back(CharSplit(IsPunctuation, SplitBehavior::kIsolated));
      return absl::OkStatus();
    case Kind::kWhitespace:
      ops->push_back(std::make_unique<WhitespaceOp>());
      break;
    case Kind::kWhitespaceSplit:
      ops->push_back(CharSplit(IsSpace, SplitBehavior::kRemoved));
      return absl::OkStatus();
    case Kind::kCharDelimiterSplit:
      if (step.delimiter.empty()) return InvalidArgument("CharDelimiterSplit: empty delimiter");
      ops->push_back(
          std::make_unique<LiteralSplitOp>(step.delimiter, SplitBehavior::kRemoved, false));
      return absl::OkStatus();
    case Kind::kUnicodeScripts:
      ops->push_back(std::make_unique<ScriptsOp>());
      break;
    case Kind::kFixedLength:
      if (step.length < 1) {
        return InvalidArgument("FixedLength: length %d, must be at least 1", step.length);
      }
      ops->push_back(std::make_unique<FixedLengthOp>(step.length));
      break;
  }
  return absl::OkStatus();
}

// Whether a step drops text (a split that removes its matches, white space between words).
bool Drops(const PreTokenizerStep& step) {
  switch (step.kind) {
    case Kind::kSplit:
    case Kind::kPunctuation:
      return step.behavior == SplitBehavior::kRemoved;
    case Kind::kBert:
    case Kind::kWhitespace:
    case Kind::kWhitespaceSplit:
    case Kind::kCharDelimiterSplit:
    case Kind::kUnicodeScripts:
      return true;
    default:
      return false;
  }
}

}  // namespace

PreTokenizer::PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

bool PreTokenizer::EndsInByteLevel(const std::vector<PreTokenizerStep>& steps) {
  return !steps.empty() && steps.back().kind == Kind::kByteLevel &&
         std::count_if(steps.begin(), steps.end(),
                       [](const auto& step) { return step.kind == Kind::kByteLevel; }) == 1;
}

absl::StatusOr<PreTokenizer> PreTokenizer::Create(const std::vector<PreTokenizerStep>& steps,
                                                  bool bytes) {
  constexpr size_t kMaxSteps = 64;
  if (steps.size() > kMaxSteps) {
    return InvalidArgument("%d pre-tokenizer steps: at most %d", steps.size(), kMaxSteps);
  }
  PreTokenizer result;
  for (size_t i = 0; i < steps.size(); ++i) {
    RETURN_IF_ERROR(AddStep(steps[i], bytes && i + 1 == steps.size(), &result.ops_));
    result.can_shrink_ = result.can_shrink_ || Drops(steps[i]);
    result.needs_start_ =
        result.needs_start_ || (steps[i].kind == Kind::kMetaspace &&
                                steps[i].prepend_scheme == PreTokenizerStep::Prepend::kFirst);
  }
  return result;
}

absl::Status PreTokenizer::Run(const PreToken& piece, const PreTokenSink& sink) const {
  return RunFrom(0, piece, sink);
}

absl::Status PreTokenizer::RunFrom(size_t step, const PreToken& piece,
                                   const PreTokenSink& sink) const {
  if (step == ops_.size()) return sink(piece);
  if (step + 1 == ops_.size()) return ops_[step]->Apply(piece, sink);
  return ops_[step]->Apply(piece,
                           [&](const PreToken& part) { return RunFrom(step + 1, part, sink); });
}

}  // namespace penstock
