/* Runs the network on a computer: images of int8 from standard input, results to standard output. */
#include <stdio.h>

#include "model.h"

int main(void)
{
    int8_t pixel[MODEL_CHANNELS];
    model_reset();
    while (fread(pixel, 1, sizeof pixel, stdin) == sizeof pixel) {
        if (model_push(pixel)) {
            fwrite(model_output(), 1, MODEL_OUTPUTS, stdout);
            model_reset();
        }
    }
    return 0;
}
