#pragma once

// Loads the model for the chosen backend: the runner, and what the service says about it.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/engine/model_runner.h"
#include "worker/service/service_context.h"
#include "worker/worker_options.h"

namespace penstock {

struct LoadedModel {
  std::unique_ptr<ModelRunner> runner;
  WorkerIdentity identity;
  std::shared_ptr<const TextModel> text;  // null without a tokenizer
};

// An InvalidArgument whose message begins with "--" is about that flag (exit 2); every other error
// is about the model (exit 3).
absl::StatusOr<LoadedModel> LoadModel(const WorkerOptions& options);

}  // namespace penstock
