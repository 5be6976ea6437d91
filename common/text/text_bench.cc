// Speed of encoding: text_bench TOKENIZER TEXT_FILE [SECONDS]. Prints MB/s and tokens/s of one
// thread over the whole file, and the time to load, by processor time.

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "common/text/load_tokenizer.h"
#include "common/text/stream_decoder.h"

namespace {

// Processor time of this process: other work on the machine does not count.
double Now() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}
double Seconds(double since) { return Now() - since; }

int Run(const std::string& tokenizer_path, const std::string& text_path, double seconds) {
  double start = Now();
  const auto tokenizer = penstock::LoadTokenizer(tokenizer_path);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status().ToString() << "\n";
    return 1;
  }
  std::cout << "load_s " << Seconds(start) << "\n";
  std::ifstream file(text_path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  const std::string text = std::move(content).str();
  size_t rounds = 0;
  std::vector<int32_t> ids;
  start = Now();
  double spent = 0;
  while (rounds == 0 || spent < seconds) {
    auto result = (*tokenizer)->Encode(text);
    if (!result.ok()) {
      std::cerr << result.status().ToString() << "\n";
      return 1;
    }
    ids = *std::move(result);
    ++rounds;
    spent = Seconds(start);
  }
  const double rate = static_cast<double>(rounds) / spent;
  std::cout << "encode_mb_s " << rate * static_cast<double>(text.size()) / 1e6 << "\n";
  std::cout << "encode_tokens_s " << rate * static_cast<double>(ids.size()) << "\n";
  start = Now();
  penstock::StreamDecoder decoder(**tokenizer);
  size_t bytes = 0;
  for (const int32_t id : ids) bytes += decoder.Push(id).size();
  std::cout << "stream_tokens_s " << static_cast<double>(ids.size()) / Seconds(start) << " ("
            << bytes << " bytes)\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) {
    std::cerr << "usage: text_bench TOKENIZER TEXT_FILE [SECONDS]\n";
    return 2;
  }
  return Run(argv[1], argv[2], argc > 3 ? std::atof(argv[3]) : 2.0);
}
