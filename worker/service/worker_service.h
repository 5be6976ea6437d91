#pragma once

// The Worker service over one engine. gRPC stays behind this header.

#include <cstdint>
#include <functional>
#include <memory>

#include "worker/engine/engine.h"
#include "worker/service/service_context.h"
#include "worker/service/text_model.h"

namespace grpc {
class Service;
}

namespace penstock {

struct WorkerServiceOptions {
  WorkerIdentity identity;
  std::shared_ptr<const TextModel> text;  // null: Generate takes ids only
  int text_threads = 2;
  // The Drain call: the worker is to end as on SIGTERM. Called on a gRPC thread; 0 = own timeout.
  std::function<void(int64_t deadline_ms)> on_drain;
};

class WorkerService {
 public:
  // The engine outlives the service; the server that serves it is shut down before it ends.
  WorkerService(WorkerServiceOptions options, Engine& engine);
  ~WorkerService();

  grpc::Service* grpc_service();
  // Heartbeats say so from now on, and routers send nothing more.
  void SetDraining();
  // Ends sessions and watches once what is in their mailboxes is written.
  void FinishStreams();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock
