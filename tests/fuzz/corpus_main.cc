// Runs a fuzz target over its seed corpus without libFuzzer: every file as it is, cut short at
// many places, and with seeded random damage. A crash or a sanitizer's report is the failure.
//
// Usage: TARGET FOLDER [rounds of damage per file, default 200]

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

void Run(const std::string& input) {
  // An exact heap copy: reading one byte too many is then seen.
  const std::vector<uint8_t> copy(input.begin(), input.end());
  LLVMFuzzerTestOneInput(copy.data(), copy.size());
}

std::string Damaged(std::string input, const std::vector<std::string>& corpus,
                    std::mt19937_64& random) {
  const auto below = [&](size_t n) { return n == 0 ? 0 : static_cast<size_t>(random() % n); };
  constexpr uint64_t kEdges[] = {0,          1,          0x7f,       0xff,       0xffff,
                                 0x7fffffff, 0xffffffff, 1ull << 48, 1ull << 62, ~0ull};
  for (size_t edits = 1 + below(4); edits > 0; --edits) {
    const size_t at = below(input.size());
    switch (below(6)) {
      case 0:
        if (!input.empty()) input[at] = static_cast<char>(random());
        break;
      case 1: {  // an integer at its edge
        const uint64_t value = kEdges[below(std::size(kEdges))];
        const size_t width = size_t{1} << below(4);
        for (size_t i = 0; i < width && at + i < input.size(); ++i) {
          input[at + i] = static_cast<char>(value >> (8 * i));
        }
        break;
      }
      case 2:
        input.erase(at, 1 + below(16));
        break;
      case 3:
        input.insert(at, 1 + below(8), static_cast<char>(random()));
        break;
      case 4:
        input.insert(at, input.substr(below(input.size()), below(32)));
        break;
      default: {
        const std::string& other = corpus[below(corpus.size())];
        const size_t from = below(other.size());
        input = input.substr(0, at) + other.substr(std::min(from, other.size()));
      }
    }
  }
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s FOLDER [rounds]\n", argv[0]);
    return 2;
  }
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 200;
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    if (entry.is_regular_file()) names.push_back(entry.path());
  }
  std::sort(names.begin(), names.end());
  if (names.empty()) {
    std::fprintf(stderr, "no seeds in %s\n", argv[1]);
    return 1;
  }
  std::vector<std::string> corpus;
  for (const std::string& name : names) {
    std::ifstream in(name, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  std::mt19937_64 random(1);
  size_t runs = 0;
  for (const std::string& seed : corpus) {
    Run(seed);
    const size_t step = std::max<size_t>(1, seed.size() / 200);
    for (size_t size = 0; size < seed.size(); size += step, ++runs) Run(seed.substr(0, size));
    for (int i = 0; i < rounds; ++i, ++runs) Run(Damaged(seed, corpus, random));
  }
  std::printf("%zu seeds, %zu inputs\n", corpus.size(), runs + corpus.size());
  return 0;
}
