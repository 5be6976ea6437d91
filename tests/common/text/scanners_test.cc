// Every hand-written scanner against Oniguruma with the pattern it stands for.

#include "common/text/scanners.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "common/text/regex.h"
#include "common/text/utf8.h"

namespace penstock {
namespace {

// Where pieces end: matches and the gaps between them.
std::vector<size_t> EndsByRegex(const Regex& regex, const std::string& text) {
  std::vector<size_t> ends;
  size_t done = 0;
  const absl::Status status = regex.FindAll(text, [&](Span match) {
    if (match.first > done) ends.push_back(match.first);
    ends.push_back(match.second);
    done = match.second;
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  if (done < text.size()) ends.push_back(text.size());
  return ends;
}

std::vector<size_t> EndsByScanner(const Scanner& scanner, const std::string& text) {
  std::vector<size_t> ends;
  for (size_t pos = 0; pos < text.size();) {
    pos = scanner.Next(text, pos);
    ends.push_back(pos);
  }
  return ends;
}

// What the patterns tell apart, and now and then any character at all.
std::string RandomText(std::mt19937& random) {
  constexpr char32_t kChosen[] = {
      'a',    'b',    's',  't',    'l',    'v',     'e',    'R',    'S',    'D',     '\'',
      '\'',   ' ',    ' ',  ' ',    '\n',   '\r',    '\t',   '0',    '7',    '.',     '/',
      '$',    '_',    0xE9, 0xC9,   0x1C5,  0x2B0,   0x301,  0x17F,  0x212A, 0xA0,    0x2028,
      0x3000, 0x661,  0xBD, 0x2167, 0x4E2D, 0x3042,  0x30FC, 0x9FA6, 0x2019, 0x20AC,  0x1F999,
      0x200D, 0xFE0F, 0x85, 0x0B,   0x0,    0x10D4A, 0x1C89, 0xAD,   0x93F,  0x10FFFF};
  std::string text;
  for (size_t n = random() % 14; n > 0; --n) {
    char32_t c = kChosen[random() % std::size(kChosen)];
    if (random() % 12 == 0) c = random() % 0x110000;
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    for (size_t times = random() % 8 == 0 ? 4 : 1; times > 0; --times) AppendChar(&text, c);
  }
  return text;
}

TEST(Scanners, EqualOniguruma) {
  for (const std::string_view pattern : Scanner::KnownPatterns()) {
    const auto regex = Regex::Create(std::string(pattern));
    ASSERT_TRUE(regex.ok()) << regex.status();
    const Scanner* scanner = Scanner::ForPattern(pattern);
    std::mt19937 random(3);
    for (int round = 0; round < 8000 && !HasFailure(); ++round) {
      const std::string text = RandomText(random);
      EXPECT_EQ(EndsByScanner(*scanner, text), EndsByRegex(**regex, text))
          << pattern << " on '" << text << "'";
    }
  }
}

TEST(Scanners, OnlyKnownPatternsHaveOne) {
  EXPECT_EQ(Scanner::ForPattern(R"(\p{N}{1,4})"), nullptr);
  EXPECT_EQ(Scanner::ForPattern(""), nullptr);
  EXPECT_NE(Scanner::ForPattern(R"(\p{N}{1,3})"), nullptr);
}

}  // namespace
}  // namespace penstock
