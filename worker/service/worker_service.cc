#include "worker/service/worker_service.h"

#include "common/base/status.h"
#include "common/rpc/rpc_status.h"
#include "penstock/v1/worker.grpc.pb.h"
#include "worker/service/generate.h"
#include "worker/service/model_calls.h"
#include "worker/service/session.h"

namespace penstock {

class WorkerService::Impl final : public v1::Worker::CallbackService {
 public:
  Impl(WorkerServiceOptions options, Engine& engine)
      : context_(engine, std::move(options.identity), std::move(options.text),
                 options.text_threads) {
    context_.on_drain = std::move(options.on_drain);
  }

  ServiceContext& context() { return context_; }

  // NOLINTBEGIN: the names are the proto's
  grpc::ServerBidiReactor<v1::SessionUp, v1::SessionDown>* Session(
      grpc::CallbackServerContext* call) override {
    return penstock::Session::Start(context_, call);
  }
  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* call, const v1::GenerateRequest* request) override {
    return penstock::Generate::Start(context_, call, request);
  }
  grpc::ServerWriteReactor<v1::GetModelResponse>* GetModel(
      grpc::CallbackServerContext*, const v1::GetModelRequest* request) override {
    return StartGetModel(context_, *request);
  }
  grpc::ServerWriteReactor<v1::Load>* WatchLoad(grpc::CallbackServerContext*,
                                                const v1::WatchLoadRequest* request) override {
    return StartWatchLoad(context_, *request);
  }
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* call,
                                  const v1::DrainRequest* request,
                                  v1::DrainResponse* response) override {
    grpc::ServerUnaryReactor* reactor = call->DefaultReactor();
    if (request->deadline_ms() < 0) {
      reactor->Finish(ToGrpcStatus(WithField(
          InvalidArgument("deadline_ms: %d is negative", request->deadline_ms()), "deadline_ms")));
      return reactor;
    }
    const EngineStats stats = context_.engine.Stats();
    response->set_running(stats.running);
    response->set_waiting(stats.waiting);
    if (context_.on_drain) context_.on_drain(request->deadline_ms());
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  // NOLINTEND

 private:
  ServiceContext context_;
};

WorkerService::WorkerService(WorkerServiceOptions options, Engine& engine)
    : impl_(std::make_unique<Impl>(std::move(options), engine)) {}

WorkerService::~WorkerService() = default;

grpc::Service* WorkerService::grpc_service() { return impl_.get(); }

void WorkerService::SetDraining() { impl_->context().draining = true; }

void WorkerService::FinishStreams() { impl_->context().StopLongLived(); }

}  // namespace penstock
