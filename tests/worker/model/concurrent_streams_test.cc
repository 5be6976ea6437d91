// Many streams at once on the CPU engine, greedy and seeded: each gets the tokens and log
// probabilities, to the bit, that it gets alone. On a tiny model, and on a real one where
// PENSTOCK_TEST_MODEL names it.

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "worker/engine/engine.h"
#include "worker/model/cpu_runner.h"
#include "worker/model/weight_source.h"

namespace penstock {
namespace {

constexpr int32_t kStreams = 32;
constexpr int32_t kOutputs = 12;

struct Stream {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;  // of the sampled tokens
  friend bool operator==(const Stream&, const Stream&) = default;
};

// Gathers what every request gets; filled by the engine thread.
class Gatherer : public EventSink {
 public:
  void OnEvents(StepEvents* events) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const TokenEvent& e : events->tokens) {
      streams_[Value(e.id) % kStreams].tokens.push_back(e.token);
    }
    for (const LogprobEvent& e : events->logprobs) {
      streams_[Value(e.id) % kStreams].logprobs.push_back(e.logprobs.at(0).logprob);
    }
    for (const FinishEvent& e : events->finished) {
      EXPECT_EQ(e.reason, FinishReason::kLength) << e.status;
      ++finished_;
    }
    changed_.notify_all();
  }
  // Waits until so many requests have finished in all.
  void Wait(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    ASSERT_TRUE(
        changed_.wait_for(lock, std::chrono::minutes(2), [&] { return finished_ >= count; }));
  }
  std::map<uint64_t, Stream> Take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    finished_ = 0;
    return std::exchange(streams_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Stream> streams_;
  size_t finished_ = 0;
};

// Stream `n` of a fixed set: prompts of 3 to 70 tokens, every fourth beginning like its
// neighbours; half of them greedy, the others drawn with a seed, a filter or a penalty.
EngineRequest Request(uint64_t stream, int32_t vocab_size) {
  EngineRequest r;
  const auto n = static_cast<int32_t>(stream);
  const int32_t length = 3 + n * 37 % 68;
  for (int32_t i = 0; i < length; ++i) {
    const int32_t seed = i < 40 ? n / 4 : n;
    r.prompt_ids.push_back((seed * 7919 + i * 104729 + i * i * 31) % vocab_size);
  }
  r.max_tokens = kOutputs;
  r.sampling = {.temperature = n % 2 == 0 ? 0.0f : 0.9f, .seed = 1000 + stream, .top_logprobs = 0};
  if (n % 8 == 3) r.sampling.top_p = 0.9f;
  if (n % 8 == 5) r.sampling.top_k = 40;
  if (n % 8 == 6) r.sampling.presence_penalty = 0.5f;
  return r;
}

class ConcurrentStreams {
 public:
  ConcurrentStreams(const std::string& model, bool prefix_caching) {
    auto files = OpenModelFiles(model, LoadFormat::kAuto);
    EXPECT_TRUE(files.ok()) << files.status();
    auto runner = CpuRunner::Create(files->spec, *files->weights,
                                    {.num_threads = 2,
                                     .kv_cache_bytes = int64_t{400} << 20,
                                     .max_model_len = 256,
                                     .max_num_seqs = kStreams,
                                     .max_num_batched_tokens = 128,
                                     .chunk_times = {{16, 1000}}});
    EXPECT_TRUE(runner.ok()) << runner.status();
    vocab_size_ = (*runner)->info().vocab_size;
    auto engine = Engine::Create(
        {.model_fingerprint = "test", .enable_prefix_caching = prefix_caching}, *std::move(runner));
    EXPECT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    gatherer_ = std::make_shared<Gatherer>();
    session_ = engine_->RegisterSession(gatherer_);
  }

  std::map<uint64_t, Stream> OneByOne() {
    for (uint64_t id = 0; id < kStreams; ++id) {
      Submit(id);
      gatherer_->Wait(id + 1);
    }
    return gatherer_->Take();
  }
  // In an order of their own, so that prompts meet other prompts.
  std::map<uint64_t, Stream> AtOnce(uint64_t stride) {
    for (uint64_t i = 0; i < kStreams; ++i) Submit(i * stride % kStreams);
    gatherer_->Wait(kStreams);
    return gatherer_->Take();
  }

 private:
  // Stream n of each run has a request id of its own, n in their remainder.
  void Submit(uint64_t stream) {
    EngineRequest request = Request(stream, vocab_size_);
    request.id = RequestId{submitted_++ / kStreams * kStreams + stream};
    request.session = session_;
    const absl::Status status = engine_->Submit(std::move(request));
    ASSERT_TRUE(status.ok()) << status;
  }

  int32_t vocab_size_ = 0;
  std::shared_ptr<Gatherer> gatherer_;
  std::unique_ptr<Engine> engine_;
  uint32_t session_ = 0;
  uint64_t submitted_ = 0;
};

void ExpectSameAsAlone(const std::string& model) {
  ConcurrentStreams plain(model, false);
  const std::map<uint64_t, Stream> alone = plain.OneByOne();
  ASSERT_EQ(alone.size(), static_cast<size_t>(kStreams));
  std::set<std::vector<TokenId>> different;
  for (const auto& [id, stream] : alone) {
    EXPECT_EQ(stream.tokens.size(), static_cast<size_t>(kOutputs));
    EXPECT_EQ(stream.logprobs.size(), stream.tokens.size());
    different.insert(stream.tokens);
  }
  EXPECT_GE(different.size(), static_cast<size_t>(kStreams / 2)) << "too alike to tell apart";

  ConcurrentStreams caching(model, true);
  const std::map<uint64_t, Stream> runs[] = {plain.AtOnce(7), caching.AtOnce(5),
                                             caching.AtOnce(3)};  // the last with prefix hits
  for (size_t run = 0; run < std::size(runs); ++run) {
    for (const auto& [id, stream] : alone) {
      EXPECT_EQ(runs[run].at(id).tokens, stream.tokens) << "run " << run << ", stream " << id;
      EXPECT_EQ(runs[run].at(id).logprobs, stream.logprobs) << "run " << run << ", stream " << id;
    }
  }
}

TEST(ConcurrentStreamsTest, TinyModel) {
  const char* data = std::getenv("PENSTOCK_TEST_DATA");
  ExpectSameAsAlone(std::string(data != nullptr ? data : "tests/data") + "/model/tiny/llama");
}

TEST(ConcurrentStreamsTest, RealModel) {
  const char* model = std::getenv("PENSTOCK_TEST_MODEL");
  if (model == nullptr) GTEST_SKIP() << "PENSTOCK_TEST_MODEL names no model";
  ExpectSameAsAlone(model);
}

}  // namespace
}  // namespace penstock
