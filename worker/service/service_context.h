#pragma once

// What all calls of one worker share. Immutable after start, but for the list of long-lived calls.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "worker/engine/engine.h"
#include "worker/service/text_model.h"
#include "worker/service/wire.h"
#include "worker/service/work_threads.h"

namespace penstock {

namespace v1 {
class Hello;
class Load;
}  // namespace v1

inline constexpr int kProtocolVersion = 1;

// A call that stays open (a session, a load watch).
class LongLived {
 public:
  virtual ~LongLived() = default;
  virtual void Tick() = 0;  // every second, on the writer thread
  virtual void Stop() = 0;  // the worker ends: finish the call when all is written
};

// What a model file's text layer needs, as GetModel hands it out.
struct ModelAssetFile {
  std::string name;
  std::string sha256;  // hex
  std::string data;
};

struct WorkerIdentity {
  std::string name;         // what the operator calls the model
  std::string fingerprint;  // weights, tokenizer, dtype and spec
  std::string format;
  std::string version;
  int64_t created = 0;  // Unix seconds
  std::vector<int32_t> eos_token_ids;
  std::vector<ModelAssetFile> assets;
};

struct ServiceContext {
  ServiceContext(Engine& engine_in, WorkerIdentity identity_in,
                 std::shared_ptr<const TextModel> text_in, int text_threads);
  ~ServiceContext();

  void AddLongLived(std::weak_ptr<LongLived> call);
  void StopLongLived();
  void FillHello(v1::Hello* hello) const;
  void FillLoad(v1::Load* load) const;

  Engine& engine;
  const WorkerIdentity identity;
  const std::shared_ptr<const TextModel> text;  // null: ids only
  const RequestLimits limits;
  const uint64_t epoch;  // random per process
  std::function<void(int64_t deadline_ms)> on_drain;
  std::atomic<bool> draining = false;

 private:
  std::vector<std::shared_ptr<LongLived>> LiveCalls();

  std::mutex mutex_;
  std::vector<std::weak_ptr<LongLived>> long_lived_;  // guarded by mutex_
  bool stopping_ = false;                             // guarded by mutex_

 public:
  // Last, so that they end first: their tasks use everything above.
  // Shared, because the engine's thread may still tell a closed call's mailbox of events while all
  // this ends: the destructor stops them, and what it posts then is dropped.
  const std::shared_ptr<WorkThreads> texts;   // tokenizing, templates, detokenizing for Generate
  const std::shared_ptr<WorkThreads> writer;  // one: packs and writes sessions' messages, ticks
};

}  // namespace penstock
