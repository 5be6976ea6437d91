#pragma once

// What the workers' heartbeats say, as metric families. Pure.

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

#include "router/pool/pool.h"

namespace penstock {

std::vector<prometheus::MetricFamily> PenstockWorkerFamilies(
    const std::vector<WorkerStatus>& workers);
// vLLM's engine metrics: label engine = the worker's position in the list.
std::vector<prometheus::MetricFamily> VllmWorkerFamilies(const std::vector<WorkerStatus>& workers,
                                                         const std::string& model_name,
                                                         int32_t block_size);

}  // namespace penstock
