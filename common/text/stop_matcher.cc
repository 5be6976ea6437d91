#include "common/text/stop_matcher.h"

#include <utility>

namespace penstock {

StopMatcher::StopMatcher(Options options) : options_(std::move(options)), nodes_(1) {
  for (size_t i = 0; i < options_.stops.size(); ++i) AddStop(static_cast<int>(i));
  LinkSuffixes();
}

int32_t StopMatcher::Child(int32_t node, uint8_t byte) const {
  for (int32_t child = nodes_[node].first_child; child >= 0; child = nodes_[child].next_sibling) {
    if (nodes_[child].byte == byte) return child;
  }
  return -1;
}

void StopMatcher::AddStop(int index) {
  const std::string& stop = options_.stops[index];
  if (stop.empty()) return;
  int32_t node = 0;
  for (const char c : stop) {
    int32_t child = Child(node, static_cast<uint8_t>(c));
    if (child < 0) {
      child = static_cast<int32_t>(nodes_.size());
      nodes_.push_back({.byte = static_cast<uint8_t>(c),
                        .next_sibling = nodes_[node].first_child,
                        .depth = nodes_[node].depth + 1});
      nodes_[node].first_child = child;
    }
    node = child;
  }
  if (nodes_[node].stop < 0) nodes_[node].stop = index;  // of equal stops the first one is named
}

// Breadth first: a node's suffix is shorter than the node, so it is complete already.
void StopMatcher::LinkSuffixes() {
  std::vector<int32_t> order = {0};
  for (size_t i = 0; i < order.size(); ++i) {
    const int32_t node = order[i];
    for (int32_t child = nodes_[node].first_child; child >= 0; child = nodes_[child].next_sibling) {
      Node& c = nodes_[child];
      c.fail = node == 0 ? 0 : Next(nodes_[node].fail, c.byte);
      if (c.stop < 0) c.stop = nodes_[c.fail].stop;
      c.hold = c.first_child >= 0 ? c.depth : nodes_[c.fail].hold;
      order.push_back(child);
    }
  }
}

int32_t StopMatcher::Next(int32_t node, uint8_t byte) const {
  for (;;) {
    if (const int32_t child = Child(node, byte); child >= 0) return child;
    if (node == 0) return 0;
    node = nodes_[node].fail;
  }
}

void StopMatcher::Release(size_t count, std::string* out) {
  for (size_t i = held_begin_; i < held_begin_ + count; ++i) {
    if (held_visible_[i] != 0) out->push_back(held_[i]);
  }
  held_begin_ += count;
  if (held_begin_ * 2 < held_.size()) return;
  held_.erase(0, held_begin_);
  held_visible_.erase(0, held_begin_);
  held_begin_ = 0;
}

std::string StopMatcher::Append(std::string_view delta, int32_t token_index, bool visible) {
  if (matched()) return {};
  if (nodes_.size() == 1) return visible ? std::string(delta) : std::string();
  std::string out;
  for (const char c : delta) {
    held_.push_back(c);
    held_visible_.push_back(visible ? 1 : 0);
    node_ = Next(node_, static_cast<uint8_t>(c));
    const int stop = nodes_[node_].stop;
    if (stop < 0 || token_index < options_.min_tokens) continue;
    matched_stop_ = stop;
    Release(held_.size() - held_begin_ - options_.stops[stop].size(), &out);
    if (options_.include_stop) out += options_.stops[stop];
    held_.clear();
    held_visible_.clear();
    held_begin_ = 0;
    return out;
  }
  Release(held_.size() - held_begin_ - static_cast<size_t>(nodes_[node_].hold), &out);
  return out;
}

std::string StopMatcher::Flush() {
  std::string out;
  if (!matched()) Release(held_.size() - held_begin_, &out);
  node_ = 0;
  return out;
}

}  // namespace penstock
