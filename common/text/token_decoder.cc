#include "common/text/token_decoder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/status.h"
#include "common/text/byte_level.h"
#include "common/text/regex.h"
#include "common/text/utf8.h"

namespace penstock {

class DecoderOp {
 public:
  virtual ~DecoderOp() = default;
  virtual void Apply(std::vector<std::string>* tokens) const = 0;
};

namespace {

constexpr std::string_view kMetaspace = "\xE2\x96\x81";

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  if (from.empty()) return std::string(text);
  size_t done = 0;
  for (size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, done)) {
    out.append(text.substr(done, at - done)).append(to);
    done = at + from.size();
  }
  out += text.substr(done);
  return out;
}

class ByteLevelDecoder : public DecoderOp {
 public:
  void Apply(std::vector<std::string>* tokens) const override {
    std::string bytes;
    for (const std::string& token : *tokens) {
      bytes += ByteAlphabet::Get().Decode(token).value_or(token);
    }
    *tokens = {LossyUtf8(bytes)};
  }
};

class ByteFallbackDecoder : public DecoderOp {
 public:
  void Apply(std::vector<std::string>* tokens) const override {
    std::vector<std::string> out;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (IsValidUtf8(bytes)) {
        out.push_back(bytes);
      } else {
        out.insert(out.end(), bytes.size(), std::string(kReplacementCharacter));
      }
      bytes.clear();
    };
    for (std::string& token : *tokens) {
      const std::optional<uint8_t> byte = ByteOfPiece(token);
      if (byte.has_value()) {
        bytes += static_cast<char>(*byte);
        continue;
      }
      flush();
      out.push_back(std::move(token));
    }
    flush();
    *tokens = std::move(out);
  }
};

class FuseDecoder : public DecoderOp {
 public:
  void Apply(std::vector<std::string>* tokens) const override {
    std::string all;
    for (const std::string& token : *tokens) all += token;
    *tokens = {std::move(all)};
  }
};

class StripDecoder : public DecoderOp {
 public:
  StripDecoder(std::string content, int64_t start, int64_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void Apply(std::vector<std::string>* tokens) const override {
    for (std::string& token : *tokens) {
      size_t begin = 0, end = token.size();
      for (int64_t i = 0;
           i < start_ && token.compare(begin, content_.size(), content_) == 0 && begin < end; ++i) {
        begin += content_.size();
      }
      for (int64_t i = 0; i < stop_ && end >= begin + content_.size() &&
                          token.compare(end - content_.size(), content_.size(), content_) == 0;
           ++i) {
        end -= content_.size();
      }
      token = token.substr(begin, end - begin);
    }
  }

 private:
  std::string content_;
  int64_t start_, stop_;
};

class ReplaceDecoder : public DecoderOp {
 public:
  ReplaceDecoder(std::string literal, std::unique_ptr<const Regex> regex, std::string content)
      : literal_(std::move(literal)), regex_(std::move(regex)), content_(std::move(content)) {}
  void Apply(std::vector<std::string>* tokens) const override {
    for (std::string& token : *tokens) {
      if (regex_ == nullptr) {
        if (token.find(literal_) != std::string::npos) {
          token = ReplaceAll(token, literal_, content_);
        }
        continue;
      }
      std::string out;
      size_t done = 0;
      const absl::Status status = regex_->FindAll(token, [&](Span match) {
        out.append(token, done, match.first - done).append(content_);
        done = match.second;
        return absl::OkStatus();
      });
      if (!status.ok()) continue;  // a pattern that gives up leaves the token as it is
      out.append(token, done);
      token = std::move(out);
    }
  }

 private:
  std::string literal_;
  std::unique_ptr<const Regex> regex_;
  std::string content_;
};

class MetaspaceDecoder : public DecoderOp {
 public:
  MetaspaceDecoder(std::string replacement, bool drop_first)
      : replacement_(std::move(replacement)), drop_first_(drop_first) {}
  void Apply(std::vector<std::string>* tokens) const override {
    for (size_t i = 0; i < tokens->size(); ++i) {
      (*tokens)[i] = ReplaceAll((*tokens)[i], replacement_, i == 0 && drop_first_ ? "" : " ");
    }
  }

 private:
  std::string replacement_;
  bool drop_first_;
};

// Undoes the spaces that word splitting put before punctuation and in English contractions.
std::string CleanUp(std::string text) {
  static constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  for (const auto& [from, to] : kRules) {
    if (text.find(from) != std::string::npos) text = ReplaceAll(text, from, to);
  }
  return text;
}

class WordPieceDecoder : public DecoderOp {
 public:
  WordPieceDecoder(std::string prefix, bool cleanup)
      : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  void Apply(std::vector<std::string>* tokens) const override {
    for (size_t i = 0; i < tokens->size(); ++i) {
      std::string& token = (*tokens)[i];
      if (i > 0) {
        if (token.starts_with(prefix_)) {
          token.erase(0, prefix_.size());
        } else {
          token.insert(0, " ");
        }
      }
      if (cleanup_) token = CleanUp(std::move(token));
    }
  }

 private:
  std::string prefix_;
  bool cleanup_;
};

class BpeDecoder : public DecoderOp {
 public:
  explicit BpeDecoder(std::string suffix) : suffix_(std::move(suffix)) {}
  void Apply(std::vector<std::string>* tokens) const override {
    for (size_t i = 0; i < tokens->size(); ++i) {
      (*tokens)[i] = ReplaceAll((*tokens)[i], suffix_, i + 1 == tokens->size() ? "" : " ");
    }
  }

 private:
  std::string suffix_;
};

class CtcDecoder : public DecoderOp {
 public:
  explicit CtcDecoder(const DecoderStep& step)
      : pad_(step.pad_token), delimiter_(step.word_delimiter_token), cleanup_(step.cleanup) {}
  void Apply(std::vector<std::string>* tokens) const override {
    tokens->erase(std::unique(tokens->begin(), tokens->end()), tokens->end());
    for (std::string& token : *tokens) {
      token = ReplaceAll(token, pad_, "");
      if (cleanup_) token = ReplaceAll(CleanUp(std::move(token)), delimiter_, " ");
    }
    std::erase(*tokens, "");
  }

 private:
  std::string pad_, delimiter_;
  bool cleanup_;
};

absl::StatusOr<std::unique_ptr<const DecoderOp>> NewDecoderOp(const DecoderStep& step) {
  using Kind = DecoderStep::Kind;
  switch (step.kind) {
    case Kind::kByteLevel:
      return std::make_unique<ByteLevelDecoder>();
    case Kind::kByteFallback:
      return std::make_unique<ByteFallbackDecoder>();
    case Kind::kFuse:
      return std::make_unique<FuseDecoder>();
    case Kind::kStrip:
      if (step.content.empty()) return InvalidArgument("Strip decoder: empty content");
      return std::make_unique<StripDecoder>(step.content, step.start, step.stop);
    case Kind::kReplace: {
      std::unique_ptr<const Regex> regex;
      if (step.pattern.is_regex || step.pattern.text.empty()) {
        ASSIGN_OR_RETURN(regex, Regex::Create(step.pattern.text));
      }
      return std::make_unique<ReplaceDecoder>(step.pattern.text, std::move(regex), step.content);
    }
    case Kind::kMetaspace:
      return std::make_unique<MetaspaceDecoder>(
          step.content.empty() ? std::string(kMetaspace) : step.content, step.drop_first);
    case Kind::kWordPiece:
      return std::make_unique<WordPieceDecoder>(step.prefix, step.cleanup);
    case Kind::kBpe:
      return std::make_unique<BpeDecoder>(step.suffix);
    case Kind::kCtc:
      return std::make_unique<CtcDecoder>(step);
    case Kind::kSentencePiece:
      return InvalidArgument("the SentencePiece decoder goes with no other one");
  }
  return InvalidArgument("unknown kind of decoder %d", static_cast<int>(step.kind));
}

}  // namespace

TokenDecoder::TokenDecoder() = default;
TokenDecoder::TokenDecoder(TokenDecoder&&) noexcept = default;
TokenDecoder& TokenDecoder::operator=(TokenDecoder&&) noexcept = default;
TokenDecoder::~TokenDecoder() = default;

absl::StatusOr<TokenDecoder> TokenDecoder::Create(const std::vector<DecoderStep>& steps,
                                                  bool join_plain) {
  TokenDecoder result;
  for (const DecoderStep& step : steps) {
    ASSIGN_OR_RETURN(auto op, NewDecoderOp(step));
    result.ops_.push_back(std::move(op));
  }
  if (steps.empty() && !join_plain) result.separator_ = " ";
  return result;
}

std::string TokenDecoder::Decode(std::vector<std::string> tokens) const {
  for (const auto& op : ops_) op->Apply(&tokens);
  std::string out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += separator_;
    out += tokens[i];
  }
  return LossyUtf8(out);
}

}  // namespace penstock
