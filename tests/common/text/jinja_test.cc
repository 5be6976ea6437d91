#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "common/json/json.h"
#include "common/text/chat_template.h"
#include "common/text/jinja/program.h"
#include "common/text/jinja/value.h"

namespace penstock {
namespace {

using jinja::FromJson;
using jinja::Program;
using jinja::RenderOptions;
using jinja::Value;
using jinja::Variables;

std::string ReadFile(const std::string& name) {
  const char* folder = std::getenv("PENSTOCK_TEST_DATA");
  std::ifstream file(std::string(folder != nullptr ? folder : "tests/data") + "/jinja/" + name);
  EXPECT_TRUE(file.good()) << name;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// --- Against jinja2's own answers (tests/tools/make_jinja_goldens.py) ---

void CheckCase(const Json& golden, const Json& variables, const Json& clock) {
  const std::string name = golden.Find("name")->as_string();
  SCOPED_TRACE(name);
  const Json* source = golden.Find("template");
  const std::string text = source != nullptr
                               ? source->as_string()
                               : ReadFile("templates/" + golden.Find("template_file")->as_string());
  const Json answer = AnswerTemplateRequest(
      Json::Object{{"template", text}, {"vars", variables}, {"clock", clock}});
  if (const Json* expected = golden.Find("text")) {
    ASSERT_NE(answer.Find("text"), nullptr) << answer.Dump();
    EXPECT_EQ(answer.Find("text")->as_string(), expected->as_string());
    return;
  }
  const Json* error = answer.Find("error");
  ASSERT_NE(error, nullptr) << "jinja2 fails with " << golden.Find("message")->as_string();
  if (golden.Find("error")->as_string() == "raised") {
    EXPECT_EQ(error->as_string(), golden.Find("message")->as_string());
  } else if (const auto line = golden.Find("line")->ToInt64(); line && *line > 0) {
    EXPECT_NE(error->as_string().find("line " + std::to_string(*line)), std::string::npos)
        << error->as_string();
  }
}

void CheckGoldens(const std::string& file, size_t at_least) {
  const auto goldens = Json::Parse(ReadFile(file));
  ASSERT_TRUE(goldens.ok()) << goldens.status();
  const auto& cases = goldens->Find("cases")->as_array();
  EXPECT_GE(cases.size(), at_least);
  for (const Json& golden : cases) {
    CheckCase(golden, *goldens->Find("vars")->Find(golden.Find("vars")->as_string()),
              *goldens->Find("clock"));
  }
}

TEST(JinjaGoldens, Constructs) { CheckGoldens("constructs.json", 300); }
TEST(JinjaGoldens, WholeTemplates) { CheckGoldens("families.json", 300); }

// --- Marks ---

// The result with what is the user's in brackets.
std::string Marked(const std::string& source, const std::string& variables = "{}") {
  const auto program = Program::Compile(source);
  if (!program.ok()) return std::string(program.status().message());
  Variables values;
  const auto parsed = Json::Parse(variables);
  for (const JsonMember& member : parsed->as_object()) {
    values.emplace_back(member.key, FromJson(member.value, true));
  }
  const auto rendered = (*program)->Render(values, RenderOptions());
  if (!rendered.ok()) return std::string(rendered.status().message());
  std::string out;
  size_t at = 0;
  for (const auto& [begin, end] : rendered->user_ranges) {
    EXPECT_LT(begin, end);
    EXPECT_TRUE(at < begin || (at == 0 && begin == 0)) << "ranges touch or overlap";
    out += rendered->text.substr(at, begin - at) + "[" + rendered->text.substr(begin, end - begin) +
           "]";
    at = end;
  }
  return out + rendered->text.substr(at);
}

constexpr char kVars[] =
    R"({"u": "<|im_end|>", "p": "  ab é ", "l": ["x", "y"], "d": {"k": "v\n"}})";

TEST(JinjaMarks, FollowTheTextThroughEveryOperation) {
  const std::pair<const char*, const char*> kCases[] = {
      {"<{{ u }}>", "<[<|im_end|>]>"},
      {"{{ 'a' + u + 'b' }}", "a[<|im_end|>]b"},
      {"{{ 'a' ~ u ~ u }}", "a[<|im_end|><|im_end|>]"},
      {"{{ u[2:-2] }}{{ u[0] }}{{ u[::-1] }}", "[im_end<>|dne_mi|<]"},
      {"{{ ('a' + p + 'b') | trim }}", "a[  ab é ]b"},
      {"{{ p | trim }}|{{ p.strip() }}|{{ p.rstrip() }}", "[ab é]|[ab é]|[  ab é]"},
      {"{{ p | upper }}{{ ('x' + p) | title }}", "[  AB É ]X[  Ab É ]"},
      {"{{ u | replace('im', 'IM') }}", "[<|]IM[_end|>]"},
      {"{{ 'a-b' | replace('-', u) }}", "a[<|im_end|>]b"},
      {"{{ l | join('<sep>') }}", "[x]<sep>[y]"},
      {"{{ '-'.join(l) }}", "[x]-[y]"},
      {"{{ u.split('_') | join('#') }}", "[<|im]#[end|>]"},
      {"{{ d | tojson }}", "{\"[k]\": \"[v\\n]\"}"},
      {"{{ d }}", "{'[k]': '[v\\n]'}"},
      {"{{ l | tojson(indent=2) }}", "[\n  \"[x]\",\n  \"[y]\"\n]"},
      {"{{ '%s!' % u }}{{ '{}!'.format(u) }}{{ '%s'|format(u) }}",
       "[<|im_end|>]![<|im_end|>]![<|im_end|>]"},
      {"{{ (u ~ '\n' ~ u) | indent(2) }}", "[<|im_end|>]\n  [<|im_end|>]"},
      {"{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(u) | upper }}", "<[<|IM_END|>]>"},
      {"{% set b %}<{{ u }}>{% endset %}{{ b ~ b }}", "<[<|im_end|>]><[<|im_end|>]>"},
      {"{% filter upper %}a{{ u }}{% endfilter %}", "A[<|IM_END|>]"},
      {"{% for c in 'a' + l[0] %}{{ c }},{% endfor %}", "a,[x],"},
      {"{{ l | map('upper') | list }}", "['[X]', '[Y]']"},
      {"{{ (u * 2)[8:12] }}", "[|><|]"},
      {"{{ u | e }}", "[&lt;|im_end|&gt;]"},
      {"{{ d.items() | list }}", "[('[k]', '[v\\n]')]"},
      {"{{ 'ok' if u == '<|im_end|>' }}", "ok"},
      {"{{ u | length }}{{ u is string }}", "10True"},
  };
  for (const auto& [source, expected] : kCases)
    EXPECT_EQ(Marked(source, kVars), expected) << source;
}

// --- Errors ---

absl::Status CompileError(const std::string& source) { return Program::Compile(source).status(); }

TEST(JinjaErrors, NameLineAndColumn) {
  EXPECT_EQ(CompileError("a\n  {% nosuch %}").message(),
            "chat template, line 2, column 6: Encountered unknown tag 'nosuch'.");
  EXPECT_EQ(CompileError("é{{ 1 + }}").message(),
            "chat template, line 1, column 9: unexpected 'end of print statement'");
  const absl::Status unsupported = CompileError("\n{% include 'x' %}");
  EXPECT_EQ(unsupported.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(unsupported.message().find("line 2, column 4"), absl::string_view::npos);
  EXPECT_EQ(CompileError("{{ x | pprint }}").code(), absl::StatusCode::kUnimplemented);
}

absl::Status RenderError(const std::string& source, const RenderOptions& options = {}) {
  const auto program = Program::Compile(source);
  if (!program.ok()) return program.status();
  return (*program)->Render({}, options).status();
}

TEST(JinjaErrors, RaisedTextComesAsItIs) {
  const absl::Status status = RenderError("{{ raise_exception('Only ' ~ 2 ~ ' turns') }}");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "Only 2 turns");
  EXPECT_EQ(RenderError("a\n{{ x.y }}").message(),
            "chat template, line 2: UndefinedError: 'x' is undefined");
}

// --- Limits ---

TEST(JinjaLimits, EveryWayToRunAwayEnds) {
  RenderOptions options;
  options.limits.max_output_bytes = 1 << 20;
  options.limits.max_steps = 200'000;
  const char* kRunaways[] = {
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% set ns = namespace(s='xxxxxxxx') %}{% for a in range(99) %}{% set ns.s = ns.s ~ ns.s "
      "%}{% endfor %}",
      "{{ 'x' * 99999999999 }}",
      "{{ [0] * 99999999999 }}",
      "{{ '%99999999d' % 1 }}",
      "{{ 'a'.center(99999999999) }}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{% set ns = namespace(l=[]) %}{% for a in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}",
      "{% set ns = namespace(l=[1]) %}{% for a in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% "
      "endfor %}{{ ns.l }}",
      "{% set ns = namespace(l=[1]) %}{% for a in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% "
      "endfor %}{{ ns.l | tojson }}",
      "{% set ns = namespace(l=[1], m=[1]) %}{% for a in range(60) %}{% set ns.l = [ns.l, ns.l] "
      "%}{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
      "{% set ns = namespace(l='a') %}{% for a in range(9999) %}{% set ns.l = ns.l | map('upper') "
      "%}{% endfor %}{{ ns.l | list }}",
      "{% set ns = namespace(l=[1]) %}{% set ns.s = ns %}{{ ns }}",
      "{{ ('x' * 1000000) | replace('x', 'y' * 1000000) }}",
      "{% for a in range(99999) %}xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx{% endfor %}",
  };
  for (const char* source : kRunaways) {
    EXPECT_EQ(RenderError(source, options).code(), absl::StatusCode::kResourceExhausted)
        << source << ": " << RenderError(source, options);
  }
}

TEST(JinjaLimits, NestingInTheTextIsRefused) {
  const auto repeat = [](const std::string& s, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += s;
    return out;
  };
  EXPECT_FALSE(CompileError("{{ " + repeat("(", 5000) + "1" + repeat(")", 5000) + " }}").ok());
  EXPECT_FALSE(CompileError("{{ " + repeat("[", 5000) + repeat("]", 5000) + " }}").ok());
  EXPECT_FALSE(CompileError("{{ " + repeat("not ", 5000) + "1 }}").ok());
  EXPECT_FALSE(CompileError("{{ " + repeat("-", 5000) + "1 }}").ok());
  EXPECT_FALSE(CompileError("{{ 1" + repeat(" + 1", 5000) + " }}").ok());
  EXPECT_FALSE(CompileError("{{ x" + repeat(".x", 5000) + " }}").ok());
  EXPECT_FALSE(CompileError("{{ x" + repeat("|trim", 5000) + " }}").ok());
  EXPECT_FALSE(CompileError(repeat("{% if 1 %}", 5000) + repeat("{% endif %}", 5000)).ok());
  EXPECT_TRUE(CompileError("{{ 1" + repeat(" ~ 1", 5000) + " }}").ok());
  EXPECT_TRUE(CompileError(repeat("{% if 1 %}x{% endif %}", 5000)).ok());
  EXPECT_TRUE(CompileError("{% if 1 %}" + repeat("{% elif 1 %}", 5000) + "{% endif %}").ok());
}

TEST(JinjaProgram, ManyThreadsShareOne) {
  const auto program = Program::Compile(
      "{% macro m(x) %}{{ x | upper }}{% endmacro %}{% for i in range(50) %}{{ m('a' ~ i) }}{% "
      "endfor %}");
  ASSERT_TRUE(program.ok());
  const std::string expected = (*program)->Render({}, {})->text;
  std::vector<std::thread> threads;
  std::vector<int> equal(4, 0);
  for (size_t t = 0; t < equal.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) equal[t] += (*program)->Render({}, {})->text == expected ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, std::vector<int>(4, 50));
}

}  // namespace
}  // namespace penstock
