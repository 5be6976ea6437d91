// Reads one JSON request a line as `penstock text --jsonl` does for templates, and answers each
// with a line. For tests/tools/fuzz_jinja.py, which compares the answers with jinja2's.

#include <iostream>
#include <string>

#include "common/text/chat_template.h"

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto request = penstock::Json::Parse(line);
    const penstock::Json answer = request.ok()
                                      ? penstock::AnswerTemplateRequest(*request)
                                      : penstock::Json(penstock::Json::Object{
                                            {"error", std::string(request.status().message())}});
    std::cout << answer.Dump() << std::endl;
  }
  return 0;
}
