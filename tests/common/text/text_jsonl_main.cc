// The JSON-lines filter alone, for the differential tests (`penstock text --jsonl` is the same).

#include <iostream>

#include "common/text/text_jsonl.h"

int main() {
  std::ios::sync_with_stdio(false);
  penstock::RunTextJsonl(std::cin, std::cout);
  return 0;
}
