/* Arduino Uno: pixels come and results go over the serial port, 1 Mbit/s, 8N1.
 *
 * The board sends 'p' for every pixel that it wants and then reads its bytes; after the last pixel
 * it sends 'o' and the bytes of the result. GPIOR0 is 1 while the network computes: one cycle each,
 * for whoever counts. */
#include <avr/io.h>

#include "model.h"

static void send(uint8_t byte)
{
    while (!(UCSR0A & (1 << UDRE0))) {
    }
    UDR0 = byte;
}

static uint8_t receive(void)
{
    while (!(UCSR0A & (1 << RXC0))) {
    }
    return UDR0;
}

int main(void)
{
    UBRR0 = 1;
    UCSR0A = 1 << U2X0;
    UCSR0B = (1 << RXEN0) | (1 << TXEN0);
    for (;;) {
        uint8_t done = 0;
        uint16_t i;
        model_reset();
        while (!done) {
            int8_t pixel[MODEL_CHANNELS];
            send('p');
            for (i = 0; i < MODEL_CHANNELS; i++) {
                pixel[i] = (int8_t)receive();
            }
            GPIOR0 = 1;
            done = model_push(pixel);
            GPIOR0 = 0;
        }
        send('o');
        for (i = 0; i < MODEL_OUTPUTS; i++) {
            send((uint8_t)model_output()[i]);
        }
    }
}
