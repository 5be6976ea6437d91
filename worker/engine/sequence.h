#pragma once

// A request on its way through the engine. Open data, owned by the engine thread once submitted;
// the scheduler reads it, the engine loop changes it.

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "worker/engine/block_hash.h"
#include "worker/engine/ids.h"
#include "worker/engine/kv_cache.h"
#include "worker/engine/request.h"

namespace penstock {

struct Sequence;
struct EngineSession;

// The n choices of one prompt. Followers start when the leader's full prompt blocks can be found.
struct SequenceGroup {
  Sequence* leader = nullptr;  // the oldest live member
  bool published = false;
  int32_t members = 0;
};

// Runs before every client's priority: what an age-based admission gets.
inline constexpr int64_t kPromotedRank = std::numeric_limits<int64_t>::min();

enum class SequenceState {
  kWaiting,
  kRunning,
  kPreempting,  // gives up slot and blocks when its last row in flight is collected, then waits
  kEnded,       // its Finish is out; frees slot and blocks when its last row in flight is collected
};

struct Sequence {
  // What every step touches, together.
  SequenceState state = SequenceState::kWaiting;
  SlotId slot = kPaddingSlot;
  int32_t num_prompt = 0;   // tokens; fixed
  int32_t max_tokens = 0;   // of output; fixed
  int32_t min_tokens = 0;   // of output; fixed
  int32_t prefill_end = 0;  // tokens to compute before the first one is sampled
  int32_t computed = 0;     // positions launched
  int32_t collected = 0;    // positions whose KV is surely written
  int32_t published = 0;    // blocks offered to the prefix cache
  int32_t unknown = 0;      // tokens sampled by steps in flight
  int32_t rows_in_flight = 0;
  int32_t adapter_id = -1;  // fixed
  RequestId id{};           // fixed
  EngineSession* session = nullptr;
  SequenceGroup* group = nullptr;
  int64_t rank = 0;      // lower first: the priority, or kPromotedRank
  uint64_t arrival = 0;  // order of Submit; fixed
  uint64_t turn = 0;     // last step that gave its prefill a chunk
  int64_t first_token_ns = 0;
  std::vector<TokenId> tokens;   // prompt, replayed and sampled tokens that the host knows
  std::vector<TokenId> end_ids;  // eos_ids and stop_token_ids, sorted; fixed
  BlockTable table;

  // Rarely touched.
  std::vector<BlockHash> chain;  // hashes of full blocks of tokens, as far as computed
  BlockHash root;                // identity of the cache it uses; fixed
  EngineRequest request;         // fixed; prompt and output ids moved to tokens, id lists sorted
  size_t index = 0;              // in the engine's table of live sequences
  int64_t arrival_ns = 0;        // fixed
  int64_t start_ns = 0;
  int32_t cached_tokens = -1;  // of the first start; -1 = has not started
  int32_t preemptions = 0;

  int32_t num_output() const { return static_cast<int32_t>(tokens.size()) - num_prompt; }
  bool prefilling() const { return computed < prefill_end; }
  // False when the tokens in flight already reach max_tokens.
  bool wants_token() const { return num_output() + unknown < max_tokens; }
};

// Sequences are too many for the nearest cache: loops over a step's rows ask for one some rows
// ahead.
inline constexpr size_t kPrefetch = 6;
inline void Prefetch(const Sequence* s) {
  const char* line = reinterpret_cast<const char*>(s);
  for (size_t i = 0; i < 5; ++i) __builtin_prefetch(line + 64 * i);
}

}  // namespace penstock
