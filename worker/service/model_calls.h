#pragma once

// The calls that are not about tokens: GetModel and WatchLoad.

#include <grpcpp/support/server_callback.h>

#include "penstock/v1/worker.pb.h"
#include "worker/service/service_context.h"

namespace penstock {

inline constexpr int64_t kMaxAssetPieceBytes = 1 << 20;

grpc::ServerWriteReactor<v1::GetModelResponse>* StartGetModel(const ServiceContext& context,
                                                              const v1::GetModelRequest& request);

// The load now, and then every interval (whole seconds: the ticks of ServiceContext).
grpc::ServerWriteReactor<v1::Load>* StartWatchLoad(ServiceContext& context,
                                                   const v1::WatchLoadRequest& request);

}  // namespace penstock
