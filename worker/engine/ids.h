#pragma once

// Distinct integer types of the engine: a block is not a slot is not a request.

#include <cstdint>
#include <functional>

namespace penstock {

using TokenId = int32_t;

enum class RequestId : uint64_t {};  // the router's; its top byte names the owning io_context
enum class BlockId : int32_t {};     // a KV block; 0 takes the writes of padded rows
enum class SlotId : int32_t {};      // a running sequence's place in the runner; 0 is for padding

inline constexpr BlockId kPaddingBlock{0};
inline constexpr SlotId kPaddingSlot{0};

constexpr uint64_t Value(RequestId id) { return static_cast<uint64_t>(id); }
constexpr int32_t Value(BlockId id) { return static_cast<int32_t>(id); }
constexpr int32_t Value(SlotId id) { return static_cast<int32_t>(id); }

}  // namespace penstock
