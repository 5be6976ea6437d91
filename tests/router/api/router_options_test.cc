#include "router/router_options.h"

#include <cstdlib>
#include <fstream>

#include "gtest/gtest.h"

namespace penstock {
namespace {

absl::StatusOr<ParsedRouterOptions> Parse(std::vector<const char*> flags) {
  flags.insert(flags.begin(), {"penstock-router", "--worker", "127.0.0.1:1"});
  return ParseRouterOptions(static_cast<int>(flags.size()), flags.data());
}

RouterOptions Good(std::vector<const char*> flags) {
  auto parsed = Parse(std::move(flags));
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? *parsed->options : RouterOptions();
}

TEST(RouterOptionsTest, Lists) {
  const RouterOptions options =
      Good({"--api-key", "a", "b", "--api-key", "c", "--served-model-name", "m", "n",
            "--allowed-origins", "[\"http://x\"]", "--worker", "unix:/w"});
  EXPECT_EQ(options.api.api_keys, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(options.api.served_names, (std::vector<std::string>{"m", "n"}));
  EXPECT_EQ(options.api.cors.origins, (std::vector<std::string>{"http://x"}));
  EXPECT_EQ(options.workers, (std::vector<std::string>{"127.0.0.1:1", "unix:/w"}));
}

// As vLLM's users write them, and plainly.
TEST(RouterOptionsTest, CorsLists) {
  const auto origins = [](std::vector<const char*> values) {
    values.insert(values.begin(), "--allowed-origins");
    return Good(std::move(values)).api.cors.origins;
  };
  const std::vector<std::string> two = {"http://x", "http://y"};
  EXPECT_EQ(origins({R"(["http://x","http://y"])"}), two);
  EXPECT_EQ(origins({R"(["http://x", "http://y"])"}), two);
  EXPECT_EQ(origins({"http://x", "http://y"}), two);
  EXPECT_EQ(origins({R"(["*"])"}), std::vector<std::string>{"*"});
  const auto parsed = Parse({"--allowed-origins", R"(["http://x)"});
  ASSERT_FALSE(parsed.ok());
  EXPECT_NE(std::string(parsed.status().message()).find("--allowed-origins"), std::string::npos);
}

TEST(RouterOptionsTest, GenerationOverridesAndTemplateVariables) {
  const RouterOptions options =
      Good({"--override-generation-config", R"({"temperature":0.5,"top_k":-1,"max_new_tokens":9})",
            "--default-chat-template-kwargs", R"({"enable_thinking":false})",
            "--trust-request-chat-template"});
  const GenerationDefaults& defaults = options.api.generation_overrides;
  EXPECT_EQ(defaults.temperature, 0.5);
  EXPECT_EQ(defaults.top_k, -1);
  EXPECT_EQ(defaults.max_new_tokens, 9);
  EXPECT_FALSE(defaults.top_p.has_value());
  EXPECT_EQ(options.api.chat_template_kwargs.Dump(), R"({"enable_thinking":false})");
  EXPECT_TRUE(options.api.trust_request_chat_template);
  const auto message = [](const char* flag, const char* value) {
    const auto parsed = Parse({flag, value});
    return parsed.ok() ? std::string() : std::string(parsed.status().message());
  };
  for (const char* bad :
       {"{\"temperature\":3}", "{\"temperature\":\"0.5\"}", "{\"top_k\":1.5}",
        "{\"max_new_tokens\":0}", "{\"eos_token_id\":2}", "{\"top_p\":1e999}", "5", "{"}) {
    EXPECT_NE(message("--override-generation-config", bad).find("--override-generation-config"),
              std::string::npos)
        << bad;
  }
  EXPECT_NE(message("--default-chat-template-kwargs", "7").find("--default-chat-template-kwargs"),
            std::string::npos);
}

TEST(RouterOptionsTest, Environment) {
  setenv("VLLM_API_KEY", "secret", 1);
  setenv("PENSTOCK_PORT", "1234", 1);
  EXPECT_EQ(Good({}).api.api_keys, std::vector<std::string>{"secret"});
  EXPECT_EQ(Good({}).http.port, 1234);
  EXPECT_EQ(Good({"--port", "99"}).http.port, 99) << "a flag wins";
  EXPECT_EQ(Good({"--api-key", "typed"}).api.api_keys, std::vector<std::string>{"typed"});
  unsetenv("VLLM_API_KEY");
  unsetenv("PENSTOCK_PORT");
}

TEST(RouterOptionsTest, ConfigFile) {
  const std::string path = testing::TempDir() + "/router.toml";
  std::ofstream(path) << "port = 4321\napi-key = [\"x\", \"y\"]\nmax-logprobs = 5\n";
  const RouterOptions options = Good({"--config", path.c_str(), "--max-logprobs", "7"});
  EXPECT_EQ(options.http.port, 4321);
  EXPECT_EQ(options.api.api_keys.size(), 2u);
  EXPECT_EQ(options.api.max_logprobs, 7);
}

TEST(RouterOptionsTest, MetricsAreOpenOnLoopbackOnly) {
  EXPECT_TRUE(Good({}).api.metrics_open);
  EXPECT_FALSE(Good({"--host", "0.0.0.0"}).api.metrics_open);
  EXPECT_TRUE(Good({"--host", "0.0.0.0", "--metrics-auth", "off"}).api.metrics_open);
  EXPECT_FALSE(Good({"--metrics-auth", "on"}).api.metrics_open);
}

TEST(RouterOptionsTest, ErrorsNameTheFlag) {
  const auto message = [](std::vector<const char*> flags) {
    const auto parsed = Parse(std::move(flags));
    return parsed.ok() ? std::string() : std::string(parsed.status().message());
  };
  EXPECT_NE(message({"--porrt", "1"}).find("did you mean --port?"), std::string::npos);
  EXPECT_NE(message({"--port", "70000"}).find("--port"), std::string::npos);
  EXPECT_NE(message({"--api-key", ""}).find("--api-key"), std::string::npos);
  EXPECT_NE(message({"--overflow", "burst"}).find("--overflow"), std::string::npos);
  EXPECT_NE(message({"--enable-lora"}).find("not supported yet"), std::string::npos);
  EXPECT_NE(message({"--ssl-keyfile", "x"}).find("TLS"), std::string::npos);
  const char* bare[] = {"penstock-router"};
  EXPECT_NE(std::string(ParseRouterOptions(1, bare).status().message()).find("--worker"),
            std::string::npos);
}

}  // namespace
}  // namespace penstock
